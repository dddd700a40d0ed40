"""What the files below a directory still hold of a document."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

END = 10  # characters of a line that may also stand elsewhere, and be encoded otherwise


def bytes_with(root: Path, *traces: bytes) -> list[Path]:
    """The files that hold any of these bytes, also compressed in a table."""
    return [
        path
        for path in root.rglob("*")
        if path.is_file() and any(trace in one for one in held(path) for trace in traces)
    ]


def held(path: Path) -> Iterator[bytes]:
    yield path.read_bytes()
    if path.suffix == ".parquet":
        for column in pq.read_table(path).columns:
            yield "\n".join(map(str, column.to_pylist())).encode()


def pieces(text: str, others: str) -> Iterator[str]:
    """Lines of a text that stand in no other, and look the same in JSON."""
    for line in map(str.strip, text.splitlines()):
        plain = "'" not in line and json.dumps(line) == f'"{line}"'
        if plain and len(line) > 50 and line[END:-END] not in others:
            yield line
