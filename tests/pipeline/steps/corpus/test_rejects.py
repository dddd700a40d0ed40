"""What cannot be read is written while reading, however much it is."""

import pyarrow as pa

from pipeline.sources.source import Reason, Rejected
from pipeline.steps.corpus.rejects import ROWS_TOGETHER, RejectsTable


def test_rejects_are_written_before_they_fill_the_memory() -> None:
    written: list[pa.RecordBatch] = []
    table = RejectsTable(written.append)
    for row in range(2 * ROWS_TOGETHER + 5):
        table.append(Rejected("a.jsonl", row, Reason.EMPTY_TEXT, "the text is empty or white space"))
    assert [batch.num_rows for batch in written] == [ROWS_TOGETHER] * 2
    table.finish()
    rows = pa.Table.from_batches(written)
    assert rows["row"].to_pylist() == list(range(2 * ROWS_TOGETHER + 5))
    assert table.counts == {"set_aside": len(rows), "set_aside/empty_text": len(rows)}
