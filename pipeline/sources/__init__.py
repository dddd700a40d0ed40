"""Where documents come from: each source yields documents and names what it could not read."""

from typing import Annotated, Union

from pydantic import Field

from pipeline.sources.documents import (
    OfflineError,
    Reason,
    Rejected,
    Rejects,
    Source,
    SourceError,
    Unit,
    document_id,
)
from pipeline.sources.files import FilesConfig, FilesSource
from pipeline.sources.hub.dataset import HubConfig, HubSource
from pipeline.sources.listing import Paths
from pipeline.sources.open_file import Hash
from pipeline.sources.python_docs.libraries import LibraryDocsConfig, LibraryDocsSource
from pipeline.sources.python_docs.readmes import PackageReadmesConfig, PackageReadmesSource
from pipeline.sources.python_docs.stdlib import StdlibDocsConfig, StdlibDocsSource
from pipeline.sources.web.warc import WarcConfig, WarcSource
from pipeline.store.fingerprint import file_sha256

SourceConfig = Annotated[
    Union[StdlibDocsConfig, LibraryDocsConfig, PackageReadmesConfig, FilesConfig, WarcConfig, HubConfig],  # noqa: UP007 - one name for the schema
    Field(discriminator="kind"),
]


def open_source(corpus: str, config: SourceConfig, sha256: Hash = file_sha256) -> Source:
    """The source that a configuration describes; `corpus` is part of every document's id. Nothing is read
    yet.

    `sha256` hashes a file on this machine, or remembers its hash.
    """
    match config:
        case StdlibDocsConfig():
            return StdlibDocsSource(corpus, config)
        case LibraryDocsConfig():
            return LibraryDocsSource(corpus, config)
        case PackageReadmesConfig():
            return PackageReadmesSource(corpus, config)
        case FilesConfig():
            return FilesSource(corpus, config, sha256=sha256)
        case WarcConfig():
            return WarcSource(corpus, config, sha256)
        case HubConfig():
            return HubSource(corpus, config)


__all__ = [
    "FilesConfig",
    "OfflineError",
    "Paths",
    "Reason",
    "Rejected",
    "Rejects",
    "Source",
    "SourceConfig",
    "SourceError",
    "Unit",
    "WarcConfig",
    "document_id",
    "open_source",
]
