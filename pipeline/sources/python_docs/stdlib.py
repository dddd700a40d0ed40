"""The documentation of the running Python: docstrings of its standard library and the topics of `help()`."""

import ast
import os
import platform
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from pipeline.sources.documents import Batches, Document
from pipeline.sources.ids import own_id
from pipeline.sources.metadata import metadata_json
from pipeline.sources.python_docs.cap import ENOUGH, take
from pipeline.sources.python_docs.distributions import shuffled
from pipeline.sources.python_docs.docstrings import module_documents, module_name
from pipeline.sources.rejects import Rejects
from pipeline.sources.source import Unit
from pipeline.store.fingerprint import file_sha256, fingerprint
from pipeline.store.params import Params

SKIPPED = frozenset(("test", "tests", "idlelib", "lib2to3", "turtledemo", "pydoc_data", "__pycache__"))
TOPICS = "pydoc_data/topics.py"
UNIT = "python"


class StdlibDocsConfig(Params):
    """Documentation of the running Python's standard library."""

    kind: Literal["stdlib_docs"] = Field("stdlib_docs", description="Selects this source.")
    max_bytes: int | None = Field(
        None, ge=1, description="UTF-8 bytes of text to take at most. When not set, all of it."
    )


@dataclass(frozen=True)
class StdlibDocsSource:
    """One unit: the running Python. A cap takes complete documents, of modules and topics in the order of
    their hashes.
    """

    corpus: str
    config: StdlibDocsConfig
    version: ClassVar[str] = "stdlib-docs-1"

    def units(self) -> list[Unit]:
        listed = {**_modules(), TOPICS: _root() / TOPICS}
        files = {name: path for name, path in listed.items() if path.exists()}
        size = sum(path.stat().st_size for path in files.values())
        hashes = {name: file_sha256(path) for name, path in files.items()}
        return [Unit(UNIT, fingerprint([_origin(), hashes]), self.config.max_bytes or size)]

    def read(self, unit: Unit, rejects: Rejects) -> Iterator[pa.RecordBatch]:
        batches = Batches(self.corpus, rejects)
        yield from take(unit.name, _documents(batches), batches, self.config.max_bytes, ENOUGH)


def _documents(batches: Batches) -> Iterator[Document]:
    modules = {module_name(name): path for name, path in _modules().items()}
    topics = _topics()
    for name in shuffled([*modules, *topics]):
        if name in topics:
            metadata = metadata_json({"topic": name})
            yield Document(own_id(name), topics[name], None, _origin(), None, metadata, own_id=True)
        else:
            yield from module_documents(name, modules[name].read_bytes(), _origin(), batches)


def _modules() -> dict[str, Path]:
    """Module files by their path below the library's root; sorted, since directories list in any order."""
    root = _root()
    files: dict[str, Path] = {}
    # packages may be installed below the root, in site-packages, which is not an identifier
    for directory, inside, names in os.walk(root):
        inside[:] = [name for name in inside if name.isidentifier() and name not in SKIPPED]
        paths = (Path(directory, name) for name in names)
        files |= {path.relative_to(root).as_posix(): path for path in paths if path.suffix == ".py"}
    return dict(sorted(files.items()))


def _topics() -> dict[str, str]:
    """The texts of `help('topics')`, by `pydoc_data.topics:<topic>`; some builds of Python leave them out."""
    path = _root() / TOPICS
    if not path.exists():
        return {}
    assigned = [node.value for node in ast.parse(path.read_bytes()).body if isinstance(node, ast.Assign)]
    return {
        f"pydoc_data.topics:{topic}": text.strip()
        for value in assigned
        for topic, text in ast.literal_eval(value).items()
    }


def _origin() -> str:
    return f"python=={platform.python_version()}"


def _root() -> Path:
    return Path(sysconfig.get_path("stdlib"))
