"""Globs that match some files of a folder and no others."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from glob import escape
from pathlib import Path

from pipeline.sources.formats.compression import format_of

_NOT_UTF8 = "%[0-9A-F]{2}"


def patterns(folder: Path, names: Sequence[str], readable: Sequence[str]) -> Iterator[str]:
    """Globs that match these files and none of the other `readable` ones, whatever is added later."""
    chosen = frozenset(names)
    bysuffix_of: dict[str, list[str]] = defaultdict(list)
    for name in readable:
        bysuffix_of[suffix_of(name)].append(name)
    root = re.sub("[\udc80-\udcff]", "?", escape(folder.name))
    root = re.sub("^~", "[~]", root)  # which would stand for a home directory
    for suffix in dict.fromkeys(map(suffix_of, names)):
        others = bysuffix_of[suffix]
        if chosen.issuperset(others):
            yield f"{root}/**/*{escape(suffix)}"
            continue
        yield from (f"{root}/{pattern}" for pattern in _below("", suffix, others, chosen))


def _below(place: str, suffix: str, names: Sequence[str], chosen: frozenset[str]) -> Iterator[str]:
    """Globs that match the `chosen` of the files below a folder and none of the other `names`."""
    direct = [name for name in names if "/" not in name[len(place) :]]
    within = _magic(place) if place else ""
    if not chosen.isdisjoint(direct) and chosen.issuperset(direct):
        yield f"{within}*{escape(suffix)}"
    else:
        yield from (_magic(name) for name in direct if name in chosen)
    folders: dict[str, list[str]] = defaultdict(list)
    for name in names:
        if "/" in (rest := name[len(place) :]):
            folders[f"{place}{rest.partition('/')[0]}/"].append(name)
    for folder, inside in folders.items():
        if chosen.issuperset(inside):
            yield f"{_magic(folder)}**/*{escape(suffix)}"
        elif not chosen.isdisjoint(inside):
            yield from _below(folder, suffix, inside, chosen)


def _magic(name: str) -> str:
    """A glob that matches this name. Files are named by their path below the first wildcard, so a wildcard at
    the beginning keeps the names of files in different sub-folders apart. `listed` writes what is no UTF-8 as
    `%XX`.
    """
    first = escape(name[0]) if name[0] == "[" else f"[{name[0]}]"
    if re.match(_NOT_UTF8, name):
        first, name = "*", name[2:]
    return first + re.sub(_NOT_UTF8, "*", escape(name[1:]))


def suffix_of(name: str) -> str:
    """As it is written: `.txt`, `.JSONL.gz`."""
    plain, compression = format_of(name)
    return name[len(name) - len(plain + compression) :]
