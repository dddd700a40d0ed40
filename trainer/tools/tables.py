"""Tables of text for the terminal."""

import shutil
from collections.abc import Sequence

# Where the output is not a terminal and COLUMNS is not set.
WIDTH_ELSEWHERE = 120


def terminal_width() -> int:
    """The columns of the terminal; the environment's COLUMNS overrules them."""
    return shutil.get_terminal_size((WIDTH_ELSEWHERE, 0)).columns


def width(text: str) -> int:
    """That of the longest line."""
    return max(map(len, text.splitlines()), default=0)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligns the first column left and the others right, with two spaces between columns."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [
        [
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        for row in (header, *rows)
    ]
    return "\n".join("  ".join(line).rstrip() for line in lines)
