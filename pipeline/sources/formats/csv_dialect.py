"""What quotes mean in a table of CSV, which no part of the file says."""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence

UNQUOTED = "\t|"  # separators that most programs write without putting fields in quotes
_IN_QUOTES = re.compile(r'"((?:[^"]|"")*)"')
_ESCAPED = re.compile(r'(?<!\\)((?:\\\\)*)\\"')


def dialect(sample: Sequence[str], separator: str) -> tuple[bool, str | None]:
    """What quotes mean, by the first lines of a file. Returns whether a backslash comes before a quote within
    quotes, as Spark and MySQL write it, and the quote; None where quotes are characters like others.
    """
    if (broken := _broken(sample, separator)) and _broken(map(doubled, sample), separator) < broken:
        return True, '"'
    return False, None if separator in UNQUOTED and _are_bare(sample, separator) else '"'


def doubled(line: str) -> str:
    """The line with quotes doubled, as CSV wants it, where a backslash is before them."""
    return _ESCAPED.sub(r'\1""', line)


def _broken(lines: Iterable[str], separator: str) -> int:
    """How many rows cannot be read, or have not as many fields as the first. The last one may be cut off."""
    ended = False

    def following() -> Iterator[str]:
        nonlocal ended
        yield from lines
        ended = True

    rows = csv.reader(following(), strict=True, delimiter=separator)
    width, broken = 0, 0
    while not ended:
        try:
            row = next(rows, [])
        except csv.Error:
            broken += not ended
            continue
        width = width or len(row)
        broken += len(row) not in (0, width)
    return broken


def _are_bare(sample: Sequence[str], separator: str) -> bool:
    """Whether quotes are characters like others in these lines. They are if each line then has all fields,
    although quotes open fields that they do not close. They are not if any field doubles the quotes within
    it.
    """
    rows = [line.split(separator) for one in sample if (line := one.rstrip("\r\n"))]
    if len({*map(len, rows)}) != 1 or any(name[:1] == '"' for name in rows[0]):
        return False
    opened = [field for row in rows for field in row if field[:1] == '"']
    closed = [found[1] for field in opened if (found := _IN_QUOTES.fullmatch(field))]
    return len(closed) < len(opened) and not any('"' in field for field in closed)
