"""The order of `packing: documents` on one core: making its index, ordering an epoch, naming a state, finding
a document, and reading windows of 2,049 tokens, beside the windows of `packing: windows`.

`python performance/document_order.py`: for 10 million documents of 66 tokens and for a million of 664. Times
are processor time, which other work on the machine disturbs least.
"""

import hashlib
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from harness.sidebyside import record

from trainer.data.packing.document_stream import PIECE_WINDOWS, DocumentStream, DocumentWindows
from trainer.data.shard_writer import ShardWriter
from trainer.data.shards import TokenStream
from trainer.data.windows import StridedWindows

SEQ_LEN, ROWS, BATCHES, VOCAB, TOGETHER = 2048, 256, 40, 32_768, 100_000
DOCUMENTS = {"10 million of 66 tokens": (10_000_000, 131), "a million of 664 tokens": (1_000_000, 1327)}


def write(prefix: Path, documents: int, below: int) -> TokenStream:
    chooser = np.random.default_rng(1)
    with ShardWriter(prefix, np.dtype("<u2")) as writer:
        for _ in range(documents // TOGETHER):
            lengths = chooser.integers(2, below, TOGETHER)
            writer.add_documents(chooser.integers(4, VOCAB, int(lengths.sum()), dtype=np.uint16), lengths)
    return TokenStream([prefix])


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return round(time.process_time() - began, 3)


def measured(tokens: TokenStream, directory: Path) -> dict[str, object]:
    opened: list[DocumentStream] = []

    def index() -> None:
        opened.append(DocumentStream(tokens, PIECE_WINDOWS * SEQ_LEN, "0/text", "", directory))

    def name() -> None:
        digest = hashlib.sha256()
        for contents in stream.contents(0, stream.num_pieces):
            digest.update(contents)

    made = seconds(index)
    (stream,) = opened
    epoch = seconds(lambda: stream.begun(1))
    windows, strided = DocumentWindows(stream, SEQ_LEN, 0), StridedWindows(tokens, SEQ_LEN)
    out, rows = np.empty((ROWS, SEQ_LEN + 1), np.int64), np.arange(ROWS)
    shuffled = np.random.default_rng(2).permutation(strided.num_rows)[: ROWS * BATCHES]

    def read(windows: DocumentWindows | StridedWindows, numbers: np.ndarray) -> None:
        for batch in numbers.reshape(BATCHES, ROWS):
            windows.read(batch, out, rows)

    rates = {}
    for packing, one, numbers in (
        ("documents", windows, np.arange(ROWS * BATCHES)),
        ("windows", strided, shuffled),
    ):
        read(one, numbers)  # into the page cache
        rates[packing] = round(out.size * BATCHES / 1e6 / seconds(lambda: read(one, numbers)))  # noqa: B023
    return {
        "tokens": tokens.num_tokens,
        "pieces": stream.num_pieces,
        "index_bytes": sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()),
        "index_s": made,
        "epoch_s": epoch,
        "name_of_a_state_s": seconds(name),
        "steps_that_read_a_document_s": seconds(lambda: windows.holding(10**6, 10**6 + 60, windows.num_rows)),
        "million_tokens_per_s": rates,
    }


def main() -> None:
    report: dict[str, object] = {}
    for what, size in DOCUMENTS.items():
        with tempfile.TemporaryDirectory() as folder:
            report[what] = measured(write(Path(folder) / "shard", *size), Path(folder) / "index")
    record("document_order", report, ("numpy",))


if __name__ == "__main__":
    sys.exit(main())
