"""The packed rows of one corpus on disk: made once, then mapped; the directory's name identifies the input.

starts.i64   start of each piece in the corpus' token stream
lengths.i32  tokens of each piece
ends.i64     number of pieces up to and including each row
index.json   seq_len, the numbers of rows, pieces and tokens in them, and the size of each file
"""

import hashlib
import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from trainer.data.memmap import map_file
from trainer.data.packing.made_once import made_once
from trainer.data.shards import CHECKED_TOGETHER, ShardError, TokenStream
from trainer.data.windows import PADDING

VERSION = "best-fit-1"
FILES: dict[str, np.dtype] = {
    "starts.i64": np.dtype("<i8"),
    "lengths.i32": np.dtype("<i4"),
    "ends.i64": np.dtype("<i8"),
}

log = logging.getLogger("trainer")


class PackedRows:
    """Windows of complete documents, with the methods of StridedWindows. Documents start with `bot_id`; those
    longer than a window are cut as in bestfit.

    The index is stored in `directory`, if there is one; of several processes one makes it and the others
    wait. Raises ShardError if a shard's index is inconsistent.
    """

    def __init__(self, stream: TokenStream, seq_len: int, bot_id: int, directory: Path | None = None) -> None:
        self._stream, self._bot_id = stream, bot_id
        if directory is None:
            blocks = list(_packed(stream, seq_len))
            self._starts, self._lengths, self._ends = map(np.concatenate, zip(*blocks, strict=True))
        else:
            self._map(seq_len, directory)
        self.num_rows, self.num_pieces = len(self._ends), len(self._starts)
        if not self.num_rows:
            raise ShardError("no document has two or more tokens, so there is nothing to predict")
        # What is left of a row is one more: padding.
        self.most_pieces = int(np.diff(self._ends, prepend=0).max())
        self.most_documents = 1 + self.most_pieces

    def _map(self, seq_len: int, directory: Path) -> None:
        stream = self._stream
        path = directory / f"{_identity(stream, seq_len)}-{seq_len}"
        facts = made_once(path, lambda made: _make(stream, seq_len, made, path))
        self.padding = 1 - facts["tokens"] / max(1, facts["rows"] * (seq_len + 1))
        self._starts, self._lengths, self._ends = (
            map_file(path / name, dtype) for name, dtype in FILES.items()
        )

    def pieces(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """As StridedWindows.pieces."""
        first = int(self._ends[row - 1]) if row else 0
        return self._starts[first : self._ends[row]], self._lengths[first : self._ends[row]]

    def numbered(self, rows: np.ndarray) -> np.ndarray:
        """The pieces of these `rows` by the order of the index, int64 [rows, most_pieces]; -1 is none."""
        numbers = np.where(rows > 0, self._ends[rows - 1], 0)[:, None] + np.arange(self.most_pieces)
        return np.where(numbers < self._ends[rows][:, None], numbers, -1)

    def read(self, numbers: np.ndarray, out: np.ndarray, rows: np.ndarray) -> None:
        """As StridedWindows.read. The first token of a rest that follows another piece is not a target,
        because it follows another document.
        """
        for number, row in zip(numbers.tolist(), rows.tolist(), strict=True):
            at = 0
            for start, length in zip(*(values.tolist() for values in self.pieces(number)), strict=True):
                out[row, at : at + length] = self._stream.window(start, length)
                if at and out[row, at] != self._bot_id:
                    out[row, at] = ~out[row, at]
                at += length
            out[row, at:] = PADDING

    def holding(self, begin: int, end: int, most: int) -> np.ndarray:
        """As StridedWindows.holding, by one pass over the index."""
        pieces = np.flatnonzero((self._starts < end) & (self._starts + self._lengths > begin))
        rows = np.unique(np.searchsorted(self._ends, pieces, side="right"))
        return rows[rows < most]


def _identity(stream: TokenStream, seq_len: int) -> str:
    """Identifies the rows: they depend on the documents' lengths alone, not on the ends of shards."""
    digest = hashlib.sha256(f"{VERSION}/{seq_len}".encode())
    for shard in stream.shards:
        for first in range(0, shard.num_documents, CHECKED_TOGETHER):
            digest.update(shard.lengths[first : first + CHECKED_TOGETHER].tobytes())
    return digest.hexdigest()[:16]


def _packed(stream: TokenStream, seq_len: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Starts, lengths and ends as they are stored, in blocks."""
    # Imported here because it loads compiled kernels.
    from trainer.data.packing.bestfit import pack

    pieces = 0
    for starts, lengths in stream.documents():
        packed = pack(starts, lengths, seq_len)
        yield packed.starts, packed.lengths, packed.ends + pieces
        pieces += len(packed.starts)


def _make(stream: TokenStream, seq_len: int, made: Path, path: Path) -> dict[str, int]:
    """Fills the directory `made`, which will be called `path`."""
    started = time.perf_counter()
    rows = pieces = tokens = 0
    with ExitStack() as opened:
        files = [opened.enter_context((made / name).open("wb")) for name in FILES]
        for written in _packed(stream, seq_len):
            for file, values, dtype in zip(files, written, FILES.values(), strict=True):
                file.write(values.astype(dtype).tobytes())
            starts, lengths, ends = written
            rows += len(ends)
            pieces += len(starts)
            tokens += int(lengths.sum(dtype=np.int64))
    seconds = time.perf_counter() - started
    log.info(f"packed {stream.num_tokens:,} tokens into {rows:,} rows in {seconds:.1f} s: {path}")
    return {"seq_len": seq_len, "rows": rows, "pieces": pieces, "tokens": tokens}
