"""Installed packages and their files."""

import csv
import hashlib
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pydantic import Field

from pipeline.sources.errors import SourceError
from pipeline.store.fingerprint import file_sha256
from pipeline.store.params import Params

PROJECT = "groundwork"
Installation = tuple[tuple[str, int], ...]


class PackagesConfig(Params):
    """Which packages to read, and how much of them."""

    kind: str
    packages: tuple[str, ...] | None = Field(
        None,
        min_length=1,
        description="Installed packages to read. When not set, this project's dependencies without "
        "its extras.",
    )
    max_bytes: int | None = Field(
        None,
        ge=1,
        description="UTF-8 bytes of text to take at most, shared fairly among the packages. When not set, "
        "all of it.",
    )


class File(NamedTuple):
    """A file of a distribution: its listed path in parts, the hash that the installer recorded ('' for none),
    and its place on this machine.
    """

    parts: tuple[str, ...]
    recorded: str
    path: Path

    @property
    def content_hash(self) -> str:
        return self.recorded or file_sha256(self.path)


def installation() -> Installation:
    """Each import directory with the time of its last change. Installing, upgrading or removing a package
    changes it.
    """
    return tuple(
        (directory, Path(directory).stat().st_mtime_ns) for directory in sys.path if Path(directory).is_dir()
    )


def distributions(packages: Sequence[str] | None) -> dict[str, Distribution]:
    """The named distributions, or this project's dependencies without its extras, by normalised name and in
    its order. Other installed packages, such as test tools or an editor, do not count.

    A dependency that is not installed is left out. Raises SourceError for a named package that is not.
    """
    names = _closure(installation()) if packages is None else map(canonicalize_name, packages)
    found: dict[str, Distribution] = {}
    for name in sorted(set(names)):
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            if packages is not None:
                raise SourceError(
                    f"package {name!r} is not installed; install it or remove it from `packages`"
                ) from None
    return found


@lru_cache(maxsize=1)  # shared by all corpora of these kinds
def _closure(_: Installation) -> frozenset[str]:
    try:
        todo = _requirements(distribution(PROJECT), frozenset())
    except PackageNotFoundError:
        raise SourceError(
            f"{PROJECT!r} itself is not installed, so its dependencies are unknown; run `make setup` or set "
            "`packages`"
        ) from None
    visited: set[tuple[str, frozenset[str]]] = set()
    while todo:
        name, extras = needed = todo.pop()
        if needed in visited:
            continue
        visited.add(needed)
        try:
            todo += _requirements(distribution(name), extras)
        except PackageNotFoundError:
            continue
    return frozenset(name for name, _ in visited) - {PROJECT}


def _requirements(of: Distribution, extras: frozenset[str]) -> list[tuple[str, frozenset[str]]]:
    parsed = [Requirement(text) for text in of.requires or []]
    return [
        (canonicalize_name(item.name), frozenset(item.extras))
        for item in parsed
        if item.marker is None or any(item.marker.evaluate({"extra": extra}) for extra in ("", *extras))
    ]


def files(of: Distribution, wanted: Callable[[tuple[str, ...]], bool]) -> list[File]:
    """The existing files whose path parts are wanted, in order."""
    root = Path(str(of.locate_file("")))
    found = (File(parts, recorded, root.joinpath(*parts)) for parts, recorded in _listed(of) if wanted(parts))
    return sorted(file for file in found if file.path.is_file())


def _listed(of: Distribution) -> Iterator[tuple[tuple[str, ...], str]]:
    """All files as the installer listed them. RECORD is parsed here because `Distribution.files` makes a path
    object of each file, which takes half a second for 40,000.
    """
    record = of.read_text("RECORD")
    if record is not None:
        yield from ((tuple(row[0].split("/")), row[1]) for row in csv.reader(record.splitlines()) if row)
    else:
        yield from ((file.parts, "") for file in of.files or [])


def label(name: str, of: Distribution) -> str:
    """`name==version`, the source of a distribution's documents."""
    return f"{name}=={of.version}"


def shuffled(names: Sequence[str]) -> list[str]:
    """The names in the order of their hashes: fair, and the same everywhere."""
    return sorted(names, key=lambda name: hashlib.blake2b(name.encode(), digest_size=8).digest())
