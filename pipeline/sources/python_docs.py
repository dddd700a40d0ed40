"""Docstrings of installed Python packages and of Python's standard library."""

import hashlib
import os
import platform
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from pipeline.sources.docstrings import module_documents
from pipeline.sources.documents import Batches
from pipeline.sources.source import Rejects, SourceError, Unit
from pipeline.store.file_hashes import FileState, seen
from pipeline.store.fingerprint import file_sha256, fingerprint
from pipeline.store.params import Params, form

STANDARD_LIBRARY = "python"
TESTS = ("test", "tests", "testing", "idlelib", "lib2to3", "turtledemo")
VENDORED = ("vendor", "vendored", "_vendor", "_vendored", "extern", "externals", "_external", "third_party")
SKIPPED = frozenset((*TESTS, *VENDORED, "__pycache__"))
ENOUGH = 0.95  # of `max_bytes`: parsing every other module for what still fits would cost more than it gives

IMPORTED = form(r"^[A-Za-z_]\w*$", "the name of a package as it is imported, without dots, such as `numpy`")


class Packages(Params):
    """Installed packages, or Python's standard library."""

    packages: tuple[Annotated[str, Field(pattern=IMPORTED)], ...] = Field((STANDARD_LIBRARY,), min_length=1)
    """Installed packages to read, by their import names. `python` is the standard library."""

    def units(self, size: int | None) -> list[Unit]:
        """One for each package, fingerprinted by its modules, with `size` as its bytes if there is one."""
        return [_unit(package, size) for package in sorted(set(self.packages))]


class PythonDocsConfig(Packages):
    """Docstrings of installed packages, or of Python's standard library."""

    kind: Literal["python_docs"] = "python_docs"
    """Selects this source."""
    max_bytes: int | None = Field(None, ge=1)
    """UTF-8 bytes of text to take at most from each package. When not set, all of it."""


@dataclass(frozen=True)
class PythonDocsSource:
    """One unit per package, fingerprinted by its modules. `max_bytes` takes complete documents, of modules in
    the order of the hashes of their names.
    """

    corpus: str
    config: PythonDocsConfig
    version: ClassVar[str] = "python-docs-1"

    def units(self) -> list[Unit]:
        return self.config.units(self.config.max_bytes)

    def read(self, unit: Unit, rejects: Rejects) -> Iterator[pa.RecordBatch]:
        batches, cap, used = Batches(self.corpus, rejects), self.config.max_bytes, 0
        modules, origin = modules_of(unit.name), origin_of(unit.name)
        for name in sorted(modules, key=mixed):
            if cap is not None and used >= ENOUGH * cap:
                break
            for document in module_documents(name, modules[name].read_bytes(), origin, batches):
                if cap is None or used + len(document.text.encode(errors="replace")) <= cap:
                    used += batches.add(unit.name, document)
            yield from batches.full()
        yield from batches.rest()


def _unit(package: str, size: int | None) -> Unit:
    modules = modules_of(package)
    states = {name: seen(path.stat()) for name, path in modules.items()}
    hashes = {name: _sha256(path, states[name]) for name, path in modules.items()}
    all_bytes = sum(found[0] for found in states.values())
    state = [origin_of(package), platform.python_version(), hashes]  # its grammar decides which modules parse
    return Unit(package, fingerprint(state), size or all_bytes)


def mixed(name: str) -> bytes:
    """A key that sorts names as if they were shuffled, always alike."""
    return hashlib.blake2b(name.encode(), digest_size=8).digest()


@cache
def _sha256(path: Path, _: FileState) -> str:
    """Once in a process for each state of a file: the store, which remembers hashes for longer, takes longer
    to recall that of a small file than it takes to read it.
    """
    return file_sha256(path)


def modules_of(package: str) -> dict[str, Path]:
    """The modules of a package by name, without tests and vendored copies; sorted, since directories list in
    any order. Nothing is imported.
    """
    root, prefix = Path(sysconfig.get_path("stdlib")), tuple[str, ...]()
    if package != STANDARD_LIBRARY:
        spec = find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise SourceError(f"no package {package!r} is installed; install it or remove it from `packages`")
        root, prefix = Path(next(iter(spec.submodule_search_locations))), (package,)
    modules: dict[str, Path] = {}
    for directory, inside, names in os.walk(root):
        # site-packages may lie within the standard library; its name is not an identifier
        inside[:] = [name for name in inside if name.isidentifier() and name not in SKIPPED]
        above = (*prefix, *Path(directory).relative_to(root).parts)
        for name in names:
            stem = name.removesuffix(".py")
            if stem != name and stem.isidentifier() and not stem.startswith("test_"):
                modules[".".join(above if stem == "__init__" else (*above, stem))] = Path(directory, name)
    return dict(sorted(modules.items()))


def origin_of(package: str) -> str:
    """`numpy==2.4.6`, the source of a package's documents; the name alone if its distribution has another."""
    if package == STANDARD_LIBRARY:
        return f"python=={platform.python_version()}"
    try:
        return f"{package}=={version(package)}"
    except PackageNotFoundError:
        return package
