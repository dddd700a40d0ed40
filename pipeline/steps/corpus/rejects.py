"""The table of what a source could not read."""

from collections.abc import Callable
from dataclasses import asdict

import pyarrow as pa

from pipeline.sources.source import Rejected
from pipeline.store.parts import Counts, add

REJECTS_SCHEMA = pa.schema(
    [("file", pa.string()), ("row", pa.int64()), ("reason", pa.string()), ("detail", pa.string())]
)
ROWS_TOGETHER = 1 << 16


class RejectsTable:
    """Counts and writes what is set aside, in 30 MB for any number. `finish` writes the last rows."""

    def __init__(self, write: Callable[[pa.RecordBatch], None]):
        self.counts: Counts = {"set_aside": 0}
        self.first: Rejected | None = None
        self._write = write
        self._rows: list[Rejected] = []

    def append(self, rejected: Rejected) -> None:
        self.first = self.first or rejected
        add(self.counts, {"set_aside": rejected.rows, f"set_aside/{rejected.reason}": rejected.rows})
        if rejected.lost_bytes:
            add(self.counts, {"lost_bytes": rejected.lost_bytes})
        self._rows.append(rejected)
        if len(self._rows) == ROWS_TOGETHER:
            self.finish()

    def finish(self) -> None:
        rows = [asdict(rejected) for rejected in self._rows]
        self._rows.clear()
        self._write(pa.RecordBatch.from_pylist(rows, schema=REJECTS_SCHEMA))
