"""What is installed beside this project: distributions, their files, and fair shares of a cap."""

import hashlib
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, PackagePath, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pipeline.fingerprint import file_sha256
from pipeline.sources.documents import SourceError

PROJECT = "groundwork"
Installation = tuple[tuple[str, int], ...]


def installation() -> Installation:
    """The directories that packages are imported from and when each changed last; differs once a package comes, goes or is upgraded."""
    return tuple((directory, Path(directory).stat().st_mtime_ns) for directory in sys.path if Path(directory).is_dir())


def distributions(packages: Sequence[str] | None) -> dict[str, Distribution]:
    """The named distributions, or all that this project needs without its extras, by normalised name, ordered by it.

    What somebody installed beside them (test tools, an editor) changes nothing. A dependency that is not installed is left out;
    a named package that is not raises SourceError.
    """
    names = _closure() if packages is None else {canonicalize_name(name) for name in packages}
    found: dict[str, Distribution] = {}
    for name in sorted(names):
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            if packages is not None:
                raise SourceError(f"package {name!r} is not installed; install it or take it out of `packages`") from None
    return found


def _closure() -> set[str]:
    try:
        todo = _requirements(distribution(PROJECT), frozenset())
    except PackageNotFoundError:
        raise SourceError(f"{PROJECT!r} itself is not installed, so its libraries are not known; run `make setup` or name `packages`") from None
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
    return {name for name, _ in visited} - {PROJECT}


def _requirements(of: Distribution, extras: frozenset[str]) -> list[tuple[str, frozenset[str]]]:
    parsed = [Requirement(text) for text in of.requires or []]
    return [
        (canonicalize_name(item.name), frozenset(item.extras))
        for item in parsed
        if item.marker is None or any(item.marker.evaluate({"extra": extra}) for extra in ("", *extras))
    ]


def located(file: PackagePath) -> Path:
    """Where a distribution's file lies on this machine."""
    return Path(str(file.locate()))


def content_hash(file: PackagePath) -> str:
    """The content hash that the installer recorded for a file, or its sha256."""
    return f"{file.hash.mode}={file.hash.value}" if file.hash else file_sha256(located(file))


def label(name: str, of: Distribution) -> str:
    """`name==version`, the source of what comes from a distribution."""
    return f"{name}=={of.version}"


def shuffled(names: Sequence[str]) -> list[str]:
    """An order that favours nobody and is the same everywhere: by hash."""
    return sorted(names, key=lambda name: hashlib.blake2b(name.encode(), digest_size=8).digest())


def fair_shares(sizes: Mapping[str, int], cap: int | None) -> dict[str, int]:
    """How many bytes each may give: all of it, or, where the sizes exceed `cap`, the same level for all that are larger than it."""
    shares: dict[str, int] = {}
    left = sum(sizes.values()) if cap is None else cap
    for waiting, name in zip(range(len(sizes), 0, -1), sorted(sizes, key=lambda name: (sizes[name], name)), strict=True):
        shares[name] = min(sizes[name], left // waiting)
        left -= shares[name]
    if cap is None:
        return shares
    # sizes may be estimates: where the cap does not bind, it should not cut either
    return {name: min(2 * size, size + left // len(shares)) for name, size in shares.items()}


def whole_shares(sizes: Mapping[str, Sequence[int]], cap: int | None) -> dict[str, int]:
    """Shares as of `fair_shares` for documents of known sizes, which are given whole, in order, each that still fits: the highest such level."""
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
