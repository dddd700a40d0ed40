"""Sources of documents. Each kind of source is one line of `KINDS`: its settings, and how it is opened."""

from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import Field

from pipeline.sources.benchmarks.source import BenchmarkConfig, BenchmarkSource
from pipeline.sources.files import FilesConfig, FilesSource
from pipeline.sources.hub.dataset import HubConfig, HubSource
from pipeline.sources.python_docs import PythonDocsConfig, PythonDocsSource
from pipeline.sources.source import Source
from pipeline.sources.source_file import Hash
from pipeline.sources.stored import StoredConfig, StoredSource
from pipeline.sources.user_code import PythonConfig, PythonSource
from pipeline.sources.web.warc import WarcConfig, WarcSource
from pipeline.store.fingerprint import file_sha256
from pipeline.store.params import Params


class Kind(NamedTuple):
    """A kind of source. `config` has a field `kind` with one literal value, the name of the kind."""

    config: type[Params]
    open: Callable[[str, Any, Hash], Source]


# `kind: NAME` in a recipe chooses among these; a corpus's name, its settings and a file hash make a source.
KINDS = (
    Kind(PythonDocsConfig, lambda corpus, config, _: PythonDocsSource(corpus, config)),
    Kind(FilesConfig, lambda corpus, config, sha256: FilesSource(corpus, config, sha256=sha256)),
    Kind(WarcConfig, WarcSource),
    Kind(HubConfig, lambda corpus, config, _: HubSource(corpus, config)),
    Kind(BenchmarkConfig, lambda corpus, config, _: BenchmarkSource(corpus, config)),
    Kind(StoredConfig, lambda corpus, config, _: StoredSource(corpus, config)),
    Kind(PythonConfig, lambda corpus, config, _: PythonSource(corpus, config)),
)

if TYPE_CHECKING:

    class SourceConfig(Params):
        """The settings of any kind of source."""

        kind: str
else:
    SourceConfig = Annotated[reduce(or_, (kind.config for kind in KINDS)), Field(discriminator="kind")]


def open_source(corpus: str, config: Params, sha256: Hash = file_sha256) -> Source:
    """The source that a configuration describes. Nothing is read yet.

    `corpus` is part of every document's id. `sha256` hashes a local file, or recalls its hash.
    """
    return _OPENERS[type(config)](corpus, config, sha256)


_OPENERS = {kind.config: kind.open for kind in KINDS}
