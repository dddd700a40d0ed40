"""Tables of text for the terminal."""

from collections.abc import Sequence


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
