"""The endless stream of a corpus that `packing: documents` reads: epoch after epoch, the pieces of its
documents, each epoch in an order of its own. And its windows, cut wherever one ends.

The place of a piece in an epoch is a keyed hash of its document's tokens and its number, and of nothing else.
So a document that is removed or added leaves all that comes before its first piece as it was.

starts.i64    start of each piece in the corpus' token stream
lengths.i32   tokens of each piece
contents.u64  two numbers for each piece, a hash of its document's tokens and its number
index.json    the numbers of pieces and of tokens in them, and the size of each file
epoch-N/      the pieces in the order of epoch N: pieces.i64, and ends.i64, the tokens up to the end of each
"""

import hashlib
import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trainer.data.memmap import map_file
from trainer.data.order import mix
from trainer.data.packing.made_once import made_once
from trainer.data.shards import TokenStream

VERSION = "documents-1"
FILES: dict[str, np.dtype] = {
    "starts.i64": np.dtype("<i8"),
    "lengths.i32": np.dtype("<i4"),
    "contents.u64": np.dtype("<u8"),
}
EPOCH_FILES = ("pieces.i64", "ends.i64")
# The odd number of splitmix64 (Steele et al. 2014), by which copies of a piece are told apart.
APART = np.uint64(0x9E3779B97F4A7C15)
TOGETHER = 1 << 20  # pieces whose hashes are given at a time
# Windows in the longest piece of a document. A cut between pieces takes the context from what follows it; in
# long documents one window in so many has one. A longer piece fills more rows of a step with one document.
PIECE_WINDOWS = 4

log = logging.getLogger("trainer")


class Stretch(NamedTuple):
    """Tokens of the corpus in one piece; `begins` says whether they are the first of the piece."""

    start: int
    length: int
    begins: bool


class DocumentStream:
    """The stream over documents in pieces of at most `longest` + 1 tokens. `name` decides the orders, along
    with the tokens; `content` identifies the tokens.

    The index is stored in `directory`; of several processes one makes it and the others wait. Making it reads
    every token. Raises ShardError if a shard's index is inconsistent.
    """

    def __init__(self, tokens: TokenStream, longest: int, name: str, content: str, directory: Path) -> None:
        self.tokens, self._name = tokens, name
        identity = hashlib.sha256(f"{VERSION}/{longest}/{name}/{content}".encode()).hexdigest()[:16]
        self._path = directory / identity
        facts = made_once(self._path, lambda made: _make(tokens, longest, made, self._path))
        self.num_pieces, self.num_tokens = facts["pieces"], facts["tokens"]  # in an epoch
        starts, lengths, contents = (map_file(self._path / file, dtype) for file, dtype in FILES.items())
        self._starts, self.lengths, self._contents = starts, lengths, contents.reshape(-1, 2)
        self._epochs: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def runs(self, begin: int, count: int) -> Iterator[Stretch]:
        """Where `count` tokens of the stream, from token `begin` on, lie in the corpus."""
        epoch, at = divmod(begin, self.num_tokens)
        pieces, ends = self._epoch(epoch)
        number = int(np.searchsorted(ends, at, side="right"))
        while count:
            if number == self.num_pieces:
                epoch, number, at = epoch + 1, 0, 0
                pieces, ends = self._epoch(epoch)
            piece, left = int(pieces[number]), int(ends[number]) - at
            skipped, length = int(self.lengths[piece]) - left, min(left, count)
            yield Stretch(int(self._starts[piece]) + skipped, length, not skipped)
            number, at, count = number + 1, at + length, count - length

    def places(self, begin: int, end: int, count: int) -> Iterator[tuple[int, int]]:
        """Where the first `count` tokens of the stream hold any of the corpus' tokens `begin` to `end` - 1:
        from, up to. One pass over the index of each epoch.
        """
        # A piece begins with the last token of the piece before it.
        first = max(0, int(np.searchsorted(self._starts, begin, side="right")) - 2)
        last = int(np.searchsorted(self._starts, end, side="left"))
        for epoch in range(-(-count // self.num_tokens)):
            pieces, ends = self._epoch(epoch)
            for number in np.flatnonzero((first <= pieces) & (pieces < last)).tolist():
                start, length = int(self._starts[pieces[number]]), int(self.lengths[pieces[number]])
                before = epoch * self.num_tokens + int(ends[number]) - length - start
                if start + length > begin:
                    yield before + max(begin, start), before + min(end, start + length)

    def begun(self, count: int) -> int:
        """How many pieces the first `count` tokens of the stream hold any token of."""
        epochs, rest = divmod(count, self.num_tokens)
        last = np.searchsorted(self._epoch(epochs)[1], rest - 1, side="right") + 1 if rest else 0
        return epochs * self.num_pieces + int(last)

    def contents(self, first: int, last: int) -> Iterator[bytes]:
        """The hashes of pieces `first` to `last` - 1 of the stream, 16 bytes each, many at a time."""
        while first < last:
            epoch, number = divmod(first, self.num_pieces)
            pieces, _ = self._epoch(epoch)
            chosen = pieces[number : number + min(last - first, TOGETHER)]
            yield self._contents[chosen].tobytes()
            first += len(chosen)

    def _epoch(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """The pieces in the order of an epoch, and the tokens up to the end of each; both int64 [pieces]."""
        if number not in self._epochs:
            path = self._path / f"epoch-{number}"
            made_once(path, lambda made: self._make_epoch(number, made))
            pieces, ends = (map_file(path / file, np.dtype("<i8")) for file in EPOCH_FILES)
            self._epochs[number] = pieces, ends
        return self._epochs[number]

    def _make_epoch(self, number: int, path: Path) -> dict[str, Any]:
        pieces = shuffled(self._contents[:, 0], f"{self._name}/{number}".encode())
        ends = np.cumsum(self.lengths[pieces], dtype=np.int64)
        for file, values in zip(EPOCH_FILES, (pieces, ends), strict=True):
            values.astype("<i8").tofile(path / file)
        return {"pieces": len(pieces)}


class DocumentWindows:
    """The stream cut at stride seq_len, with the methods of StridedWindows. Windows are numbered through all
    epochs, without an end; `num_rows` fit into one epoch.
    """

    padding = 0.0

    def __init__(self, stream: DocumentStream, seq_len: int, bot_id: int) -> None:
        self.stream, self._seq_len, self._bot_id = stream, seq_len, bot_id
        self.num_rows = stream.num_tokens // seq_len

    def cut(self, seq_len: int) -> "DocumentWindows":
        """As StridedWindows.cut."""
        return DocumentWindows(self.stream, seq_len, self._bot_id)

    @property
    def most_documents(self) -> int:
        """As many as the shortest pieces that fit, with one that is cut at either end."""
        lengths, epochs = self.stream.lengths, 2 + self._seq_len // self.stream.num_tokens
        few = min(len(lengths), self._seq_len)
        # A window at the end of an epoch may hold a piece twice.
        shortest = np.repeat(np.sort(np.partition(lengths, few - 1)[:few]), epochs)
        return 2 + int(np.searchsorted(np.cumsum(shortest), self._seq_len, side="right"))

    def read(self, numbers: np.ndarray, out: np.ndarray, rows: np.ndarray) -> None:
        """As StridedWindows.read. The first token of a piece that does not begin a document is not a target,
        because it follows another document.
        """
        for number, row in zip(numbers.tolist(), rows.tolist(), strict=True):
            at = 0
            for start, length, begins in self.stream.runs(number * self._seq_len, self._seq_len + 1):
                out[row, at : at + length] = self.stream.tokens.window(start, length)
                if begins and out[row, at] != self._bot_id:
                    out[row, at] = ~out[row, at]
                at += length

    def pieces(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """As StridedWindows.pieces."""
        runs = [*self.stream.runs(number * self._seq_len, self._seq_len + 1)]
        return np.array([run.start for run in runs]), np.array([run.length for run in runs])

    def holding(self, begin: int, end: int, most: int) -> np.ndarray:
        """As StridedWindows.holding, of the first `most` windows."""
        read = most * self._seq_len + 1
        numbers = [
            np.arange(max(0, (first - 1) // self._seq_len), (last - 1) // self._seq_len + 1)
            for first, last in self.stream.places(begin, end, read)
        ]
        found = np.unique(np.concatenate(numbers)) if numbers else np.zeros(0, np.int64)
        return found[found < most]


def shuffled(contents: np.ndarray, key: bytes) -> np.ndarray:
    """The order of pieces that `key` selects, int64 [pieces], by the hashes of their `contents`, uint64
    [pieces]. Needs 48 bytes for each piece, and about 0.3 µs.

    Copies of a document are told apart by how many come before them, so that they do not end up side by side.
    """
    by_content = np.argsort(contents, kind="stable")
    ascending = contents[by_content]
    firsts = np.flatnonzero(np.concatenate([[True], ascending[1:] != ascending[:-1]]))
    copies = np.arange(len(contents)) - np.repeat(firsts, np.diff(firsts, append=len(contents)))
    selected = np.frombuffer(hashlib.blake2b(key, digest_size=8).digest(), dtype="<u8")
    places = np.empty_like(contents)
    places[by_content] = mix((ascending + copies.astype(np.uint64) * APART) ^ selected)
    return np.argsort(places, kind="stable")


def cut(starts: np.ndarray, lengths: np.ndarray, longest: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The pieces of documents of `lengths` tokens from `starts`: how many each document has (int64), their
    starts (int64) and their lengths (int32).

    A piece gives at most `longest` predictions. It begins with the last token of the piece before it, so that
    each token of a document but the first is predicted in one piece.
    """
    counts = np.maximum(1, -(-(lengths.astype(np.int64) - 1) // longest))
    offsets = longest * (np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts))
    left = np.repeat(lengths, counts) - offsets
    return counts, np.repeat(starts, counts) + offsets, np.minimum(left, longest + 1).astype(np.int32)


def _make(tokens: TokenStream, longest: int, made: Path, path: Path) -> dict[str, Any]:
    """Fills the directory `made`, which will be called `path`."""
    started = time.perf_counter()
    pieces = total = 0
    with ExitStack() as opened:
        files = [opened.enter_context((made / file).open("wb")) for file in FILES]
        for documents in tokens.documents():
            counts, starts, lengths = cut(*documents, longest)
            written = (starts, lengths, _hashes(tokens, *documents, counts))
            for file, values, dtype in zip(files, written, FILES.values(), strict=True):
                file.write(values.astype(dtype).tobytes())
            pieces, total = pieces + len(starts), total + int(lengths.sum(dtype=np.int64))
    where = f"in {time.perf_counter() - started:.1f} s: {path}"
    log.info(f"cut {tokens.num_tokens:,} tokens into {pieces:,} pieces of documents {where}")
    return {"pieces": pieces, "tokens": total}


def _hashes(tokens: TokenStream, starts: np.ndarray, lengths: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Two numbers for each piece of documents that have `counts` of them, uint64 [pieces, 2]."""
    found = bytearray()
    for start, length, count in zip(starts.tolist(), lengths.tolist(), counts.tolist(), strict=True):
        document = tokens.window(start, length)
        text = hashlib.blake2b(document.data, digest_size=16, person=document.dtype.str.encode())
        for number in range(count):
            piece = text.copy()
            piece.update(number.to_bytes(8, "little"))
            found += piece.digest()
    return np.frombuffer(found, "<u8").reshape(-1, 2)
