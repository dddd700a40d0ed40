"""Where documents come from: each source yields documents and names what it could not read."""

from typing import Annotated, Union

from pydantic import Field

from pipeline.sources.documents import Reason, Rejected, Rejects, Source, SourceError, Unit, document_id
from pipeline.sources.files import FilesConfig, FilesSource
from pipeline.sources.hub import HubConfig, HubSource
from pipeline.sources.libraries import LibraryDocsConfig, LibraryDocsSource
from pipeline.sources.readmes import PackageReadmesConfig, PackageReadmesSource
from pipeline.sources.stdlib import StdlibDocsConfig, StdlibDocsSource

SourceConfig = Annotated[
    Union[StdlibDocsConfig, LibraryDocsConfig, PackageReadmesConfig, FilesConfig, HubConfig],  # noqa: UP007 - one name for the schema
    Field(discriminator="kind"),
]


def open_source(corpus: str, config: SourceConfig) -> Source:
    """The source that a configuration describes; `corpus` is part of every document's id. Nothing is read yet."""
    match config:
        case StdlibDocsConfig():
            return StdlibDocsSource(corpus, config)
        case LibraryDocsConfig():
            return LibraryDocsSource(corpus, config)
        case PackageReadmesConfig():
            return PackageReadmesSource(corpus, config)
        case FilesConfig():
            return FilesSource(corpus, config)
        case HubConfig():
            return HubSource(corpus, config)


__all__ = ["FilesConfig", "Reason", "Rejected", "Rejects", "Source", "SourceConfig", "SourceError", "Unit", "document_id", "open_source"]
