"""Sources of documents. Each kind of source is one line of `KINDS`: its settings and its reader."""

from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from pipeline.sources.benchmarks.source import BenchmarkConfig, BenchmarkSource
from pipeline.sources.files import FilesConfig, FilesSource
from pipeline.sources.hub.dataset import HubConfig, HubSource
from pipeline.sources.python_docs import PythonDocsConfig, PythonDocsSource
from pipeline.sources.python_questions import PythonQuestionsConfig, PythonQuestionsSource
from pipeline.sources.source import Source
from pipeline.sources.source_file import Hash
from pipeline.sources.stored import StoredConfig, StoredSource
from pipeline.sources.user_code import PythonConfig, PythonSource
from pipeline.sources.web.warc import WarcConfig, WarcSource
from pipeline.store.fingerprint import file_sha256
from pipeline.store.params import Params

# `kind: NAME` in a recipe chooses among the settings, each with a field `kind` of one literal value.
KINDS: dict[type[Params], Callable[..., Source]] = {
    PythonDocsConfig: PythonDocsSource,
    PythonQuestionsConfig: PythonQuestionsSource,
    FilesConfig: FilesSource,
    WarcConfig: WarcSource,
    HubConfig: HubSource,
    BenchmarkConfig: BenchmarkSource,
    StoredConfig: StoredSource,
    PythonConfig: PythonSource,
}
HASHING = (FilesConfig, WarcConfig)  # sources of local files

if TYPE_CHECKING:

    class SourceConfig(Params):
        """The settings of any kind of source."""

        kind: str
else:
    SourceConfig = Annotated[reduce(or_, KINDS), Field(discriminator="kind")]


def open_source(corpus: str, config: Params, sha256: Hash = file_sha256) -> Source:
    """The source that a configuration describes. Nothing is read yet.

    `corpus` is part of every document's id. `sha256` hashes a local file, or recalls its hash.
    """
    hashed = {"sha256": sha256} if isinstance(config, HASHING) else {}
    return KINDS[type(config)](corpus, config, **hashed)
