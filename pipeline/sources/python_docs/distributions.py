"""What is installed beside this project: distributions, their files, and fair shares of a cap."""

import csv
import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pipeline.sources.errors import SourceError
from pipeline.store.fingerprint import file_sha256

PROJECT = "groundwork"
Installation = tuple[tuple[str, int], ...]


class File(NamedTuple):
    """A distribution's file: the parts of its path as listed, the hash that the installer recorded or an
    empty string, and where it is.
    """

    parts: tuple[str, ...]
    recorded: str
    path: Path

    @property
    def content_hash(self) -> str:
        return self.recorded or file_sha256(self.path)


def installation() -> Installation:
    """The directories that packages are imported from and when each changed last; differs once a package
    comes, goes or is upgraded.
    """
    return tuple(
        (directory, Path(directory).stat().st_mtime_ns) for directory in sys.path if Path(directory).is_dir()
    )


def distributions(packages: Sequence[str] | None) -> dict[str, Distribution]:
    """The named distributions, or all that this project needs without its extras, by normalised name,
    ordered by it.

    What somebody installed beside them (test tools, an editor) changes nothing. A dependency that is not
    installed is left out; a named package that is not raises SourceError.
    """
    names = _closure(installation()) if packages is None else {canonicalize_name(name) for name in packages}
    found: dict[str, Distribution] = {}
    for name in sorted(names):
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            if packages is not None:
                raise SourceError(
                    f"package {name!r} is not installed; install it or take it out of `packages`"
                ) from None
    return found


@lru_cache(maxsize=1)  # every corpus of this kind asks for it
def _closure(_: Installation) -> frozenset[str]:
    try:
        todo = _requirements(distribution(PROJECT), frozenset())
    except PackageNotFoundError:
        raise SourceError(
            f"{PROJECT!r} itself is not installed, so its libraries are not known; run `make setup` or name "
            "`packages`"
        ) from None
    visited: set[tuple[str, frozenset[str]]] = set()
    while todo:
        needed = todo.pop()
        if needed in visited:
            continue
        visited.add(needed)
        try:
            todo += _requirements(distribution(needed[0]), needed[1])
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
    """The files whose parts are wanted, in order, without those that are not there any more."""
    root = Path(str(of.locate_file("")))
    found = (File(parts, recorded, root.joinpath(*parts)) for parts, recorded in _listed(of) if wanted(parts))
    return sorted(file for file in found if file.path.is_file())


def _listed(of: Distribution) -> Iterator[tuple[tuple[str, ...], str]]:
    """All files as the installer listed them. `Distribution.files` makes a path object of each: half a second
    for 40,000.
    """
    record = of.read_text("RECORD")
    if record is not None:
        yield from ((tuple(row[0].split("/")), row[1]) for row in csv.reader(record.splitlines()) if row)
    else:
        yield from ((file.parts, "") for file in of.files or [])


def label(name: str, of: Distribution) -> str:
    """`name==version`, the source of what comes from a distribution."""
    return f"{name}=={of.version}"


def shuffled(names: Sequence[str]) -> list[str]:
    """An order that favours nobody and is the same everywhere: by hash."""
    return sorted(names, key=lambda name: hashlib.blake2b(name.encode(), digest_size=8).digest())


def fair_shares(sizes: Mapping[str, int], cap: int | None) -> dict[str, int]:
    """How many bytes each may give: all of it, or, where the sizes exceed `cap`, the same level for all that
    are larger than it.
    """
    shares: dict[str, int] = {}
    left = sum(sizes.values()) if cap is None else cap
    for waiting, name in zip(
        range(len(sizes), 0, -1), sorted(sizes, key=lambda name: (sizes[name], name)), strict=True
    ):
        shares[name] = min(sizes[name], left // waiting)
        left -= shares[name]
    if cap is None:
        return shares
    # sizes may be estimates: where the cap does not bind, it should not cut either
    return {name: min(2 * size, size + left // len(shares)) for name, size in shares.items()}


def whole_shares(sizes: Mapping[str, Sequence[int]], cap: int | None) -> dict[str, int]:
    """Shares as of `fair_shares` for documents of known sizes, which are given whole, in order, each that
    still fits: the highest such level.
    """
    totals = {name: sum(documents) for name, documents in sizes.items()}
    low, high = 0, max(totals.values(), default=0)
    if cap is None:
        return totals
    while low < high:
        level = (low + high + 1) // 2
        if sum(_packed(documents, level) for documents in sizes.values()) <= cap:
            low = level
        else:
            high = level - 1
    return {name: min(total, low) for name, total in totals.items()}


def _packed(documents: Sequence[int], level: int) -> int:
    used = 0
    for size in documents:
        used += size if used + size <= level else 0
    return used
