"""Token shards: Megatron's indexed dataset, written and read. One document is one sequence.

`.bin` holds the raw little-endian tokens. `.idx` holds 9 bytes `MMIDIDX\\0\\0`, u64 version 1, u8 dtype code, u64 sequences S, u64 documents + 1,
i32[S] lengths in tokens, i64[S] byte offsets into `.bin`, i64[S + 1] document starts counted in sequences (here 0..S).
Source: Megatron-LM, megatron/core/datasets/indexed_dataset.py.
"""

import os
import struct
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np

from trainer.durable import sync

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
HEADER = struct.Struct("<9sQBQQ")
# Megatron has no uint32: ids below 2^31 are the same bytes as int32, code 4.
DTYPE_CODES: dict[int, np.dtype] = {8: np.dtype("<u2"), 4: np.dtype("<u4")}
MAX_ID = 2**31 - 1
MAX_DOCUMENT_TOKENS = 2**31 - 1


class ShardError(Exception):
    """A token shard that cannot be read as one; the message names the file and what is wrong with it."""


def token_dtype(max_id: int) -> np.dtype:
    """The smallest token type that holds ids up to `max_id`: uint16 or uint32. ValueError for a negative id or one of 2^31 and more."""
    if not 0 <= max_id <= MAX_ID:
        raise ValueError(f"token id {max_id} cannot be stored: ids range from 0 to {MAX_ID}")
    return DTYPE_CODES[8] if max_id <= 0xFFFF else DTYPE_CODES[4]


def bin_path(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + ".bin")


def idx_path(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + ".idx")


class ShardWriter:
    """Writes `<prefix>.bin` and `<prefix>.idx`; both appear under these names only when the writer closes without an error.

    `.bin` is renamed before `.idx`, so a shard whose `.idx` exists is whole.
    """

    def __init__(self, prefix: Path, dtype: np.dtype) -> None:
        self.prefix = Path(prefix)
        self.dtype = np.dtype(dtype).newbyteorder("<")
        if self.dtype not in DTYPE_CODES.values():
            raise ValueError(f"token shards hold uint16 or uint32, not {dtype}")
        self._code = next(code for code, known in DTYPE_CODES.items() if known == self.dtype)
        self._max_id = min(int(np.iinfo(self.dtype).max), MAX_ID)
        self._lengths: list[np.ndarray] = []
        self._documents = 0
        self._temporary = {path: path.with_name(f".{path.name}.{os.getpid()}.tmp") for path in (bin_path(self.prefix), idx_path(self.prefix))}
        self.prefix.parent.mkdir(parents=True, exist_ok=True)
        self._bin: BinaryIO = self._temporary[bin_path(self.prefix)].open("wb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def add(self, tokens: np.ndarray) -> None:
        """One document, `tokens` [n] of any integer type. ValueError when empty or when an id does not fit."""
        self.add_documents(tokens, np.array([len(tokens)]))

    def add_documents(self, tokens_flat: np.ndarray, lengths: np.ndarray) -> None:
        """Documents laid end to end: `tokens_flat` [sum of lengths], `lengths` [documents]. ValueError names the document and the id."""
        tokens_flat, lengths = np.asarray(tokens_flat), np.asarray(lengths, dtype=np.int64)
        self._check(tokens_flat, lengths)
        self._bin.write(tokens_flat.astype(self.dtype, copy=False).tobytes())
        self._lengths.append(lengths.astype("<i4"))
        self._documents += len(lengths)

    def _check(self, tokens: np.ndarray, lengths: np.ndarray) -> None:
        for bad in np.flatnonzero((lengths <= 0) | (lengths > MAX_DOCUMENT_TOKENS))[:1]:
            raise ValueError(f"{self.prefix}: document {self._documents + bad} has {lengths[bad]} tokens; a document has 1 to {MAX_DOCUMENT_TOKENS}")
        if int(lengths.sum()) != len(tokens):
            raise ValueError(f"{self.prefix}: lengths add up to {int(lengths.sum())} tokens, but {len(tokens)} were given")
        if tokens.dtype.kind not in "ui" and len(tokens):
            raise ValueError(f"{self.prefix}: tokens must be integers, not {tokens.dtype}")
        if len(tokens) and (int(tokens.min()) < 0 or int(tokens.max()) > self._max_id):
            position = int(np.flatnonzero((tokens < 0) | (tokens > self._max_id))[0])
            document = self._documents + int(np.searchsorted(np.cumsum(lengths), position, side="right"))
            raise ValueError(
                f"{self.prefix}: document {document} holds id {int(tokens[position])}, which does not fit {self.dtype} (0 to {self._max_id})"
            )

    def close(self) -> None:
        """Writes the index, makes both files durable and gives them their names."""
        try:
            _sync_and_close(self._bin)
            lengths = np.concatenate([np.zeros(0, "<i4"), *self._lengths])
            offsets = np.zeros(len(lengths), "<i8")
            np.cumsum(lengths[:-1].astype(np.int64) * self.dtype.itemsize, out=offsets[1:])
            with self._temporary[idx_path(self.prefix)].open("wb") as index:
                index.write(HEADER.pack(MAGIC, VERSION, self._code, len(lengths), len(lengths) + 1))
                for part in (lengths, offsets, np.arange(len(lengths) + 1, dtype="<i8")):
                    index.write(part.tobytes())
                _sync_and_close(index)
        except BaseException:
            self.discard()
            raise
        for path, temporary in self._temporary.items():
            temporary.replace(path)
        sync(self.prefix.parent)

    def discard(self) -> None:
        """Leaves nothing behind."""
        self._bin.close()
        for temporary in self._temporary.values():
            temporary.unlink(missing_ok=True)


def _sync_and_close(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
    file.close()


class Shard:
    """A shard on disk, memory-mapped. `tokens` [num_tokens], `lengths` [num_documents] int32. ShardError when the files do not agree."""

    def __init__(self, prefix: Path) -> None:
        self.prefix = Path(prefix)
        index, data = idx_path(self.prefix), bin_path(self.prefix)
        for path in (index, data):
            if not path.is_file():
                raise ShardError(f"{path}: no such file; a token shard is a .bin and an .idx of the same name")
        self.dtype, self.num_documents = self._read_header(index)
        raw = np.memmap(index, dtype=np.uint8, mode="r")
        documents, at = self.num_documents, HEADER.size
        self.lengths = raw[at : at + 4 * documents].view("<i4")
        offsets = raw[at + 4 * documents : at + 12 * documents].view("<i8")
        starts = raw[at + 12 * documents :].view("<i8")
        self._ends = np.cumsum(self.lengths, dtype=np.int64)
        self._check(index, data, offsets, starts)
        self.num_tokens = int(self._ends[-1]) if documents else 0
        self.tokens: np.ndarray = np.memmap(data, dtype=self.dtype, mode="r") if self.num_tokens else np.zeros(0, self.dtype)

    def document(self, i: int) -> np.ndarray:
        """The tokens of document i. IndexError outside 0..num_documents - 1."""
        if not 0 <= i < self.num_documents:
            raise IndexError(f"{self.prefix} has {self.num_documents} documents, there is no number {i}")
        end = int(self._ends[i])
        return self.tokens[end - int(self.lengths[i]) : end]

    @staticmethod
    def _read_header(index: Path) -> tuple[np.dtype, int]:
        with index.open("rb") as file:
            header = file.read(HEADER.size)
        if len(header) < HEADER.size:
            raise ShardError(f"{index}: {len(header)} bytes, shorter than a header of {HEADER.size}")
        magic, version, code, sequences, document_starts = HEADER.unpack(header)
        if magic != MAGIC:
            raise ShardError(f"{index}: does not start with MMIDIDX; this is not a Megatron index")
        if version != VERSION:
            raise ShardError(f"{index}: index version {version}; only version {VERSION} is known")
        if code not in DTYPE_CODES:
            raise ShardError(f"{index}: dtype code {code}; token shards hold uint16 (8) or int32 (4)")
        if document_starts != sequences + 1:
            raise ShardError(f"{index}: {sequences} sequences but {document_starts} document starts; one document must be one sequence")
        expected, size = HEADER.size + 12 * sequences + 8 * document_starts, index.stat().st_size
        if size != expected:
            raise ShardError(f"{index}: {size} bytes, but {sequences} documents need {expected}; the file is truncated or has been added to")
        return DTYPE_CODES[code], sequences

    def _check(self, index: Path, data: Path, offsets: np.ndarray, starts: np.ndarray) -> None:
        for bad in np.flatnonzero(self.lengths <= 0)[:1]:
            raise ShardError(f"{index}: document {bad} has length {self.lengths[bad]}")
        expected = (self._ends - self.lengths) * self.dtype.itemsize
        for bad in np.flatnonzero(offsets != expected)[:1]:
            raise ShardError(f"{index}: document {bad} starts at byte {offsets[bad]}, but the lengths before it put it at {expected[bad]}")
        if not np.array_equal(starts, np.arange(self.num_documents + 1)):
            raise ShardError(f"{index}: document starts are not 0..{self.num_documents}; one document must be one sequence")
        size = data.stat().st_size
        tokens = int(self._ends[-1]) if self.num_documents else 0
        if size != tokens * self.dtype.itemsize:
            raise ShardError(
                f"{data}: {size} bytes, but its index counts {tokens} tokens of {self.dtype.itemsize} bytes ({tokens * self.dtype.itemsize})"
            )


class TokenStream:
    """The shards of one corpus end to end. Finding a position costs O(log shards)."""

    def __init__(self, prefixes: Sequence[Path]) -> None:
        self.shards = [Shard(prefix) for prefix in prefixes]
        self._ends = np.cumsum([shard.num_tokens for shard in self.shards], dtype=np.int64)
        self.num_tokens = int(self._ends[-1]) if self.shards else 0

    def window(self, start: int, length: int) -> np.ndarray:
        """`length` tokens from `start`, across shards if need be: a view within one shard, a copy otherwise. IndexError outside the stream."""
        if start < 0 or length < 0 or start + length > self.num_tokens:
            raise IndexError(f"tokens {start} to {start + length} are not in a stream of {self.num_tokens}")
        first = int(np.searchsorted(self._ends, start, side="right"))
        pieces = []
        while length > 0:
            shard = self.shards[first]
            at = start - (int(self._ends[first]) - shard.num_tokens)
            piece = shard.tokens[at : at + length]
            pieces.append(piece)
            start, length, first = start + len(piece), length - len(piece), first + 1
        if len(pieces) == 1:
            return pieces[0]
        return np.concatenate(pieces) if pieces else np.zeros(0, np.uint16)
