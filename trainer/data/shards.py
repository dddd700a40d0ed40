"""Token shards in the format of Megatron's indexed dataset; one document is one sequence.

`.bin` holds the raw little-endian tokens. `.idx` holds 9 bytes `MMIDIDX\\0\\0`, u64 version 1, u8 dtype code,
u64 sequences S, u64 documents + 1, i32[S] lengths in tokens, i64[S] byte offsets into `.bin`, i64[S + 1]
document starts counted in sequences (here 0..S). Source: Megatron-LM,
megatron/core/datasets/indexed_dataset.py.
"""

import os
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from trainer.data.memmap import map_file
from trainer.system.errors import TrainerError

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
HEADER = struct.Struct("<9sQBQQ")
# Megatron has no uint32: ids below 2^31 are the same bytes as int32, code 4.
DTYPE_CODES: dict[int, np.dtype] = {8: np.dtype("<u2"), 4: np.dtype("<u4")}
MAX_ID = 2**31 - 1
CHECKED_TOGETHER = 1 << 20  # documents or tokens; bounds the memory of a check
# Documents are listed in blocks of this size, to bound the memory: packed rows depend on it.
BLOCK_DOCUMENTS = 1 << 20
BLOCK_TOKENS = 1 << 30
READ_TOGETHER = 1 << 14  # documents


class ShardError(TrainerError):
    """A token shard is invalid; the message names the file and what is wrong with it."""


def bin_path(prefix: Path) -> Path:
    return Path(f"{prefix}.bin")


def idx_path(prefix: Path) -> Path:
    return Path(f"{prefix}.idx")


class Shard:
    """A shard on disk. Raises ShardError if the header and the sizes of its files do not match.

    Opening reads a few bytes, whatever the shard's size, and keeps no file open; `check_index` checks every
    document. `tokens` [num_tokens] and `lengths` [num_documents] int32 are mapped when first used.
    """

    def __init__(self, prefix: Path) -> None:
        self.prefix = Path(prefix)
        index, data = idx_path(self.prefix), bin_path(self.prefix)
        try:
            descriptor = os.open(index, os.O_RDONLY | os.O_CLOEXEC)
            try:
                self.dtype, self.num_documents = _read_header(index, descriptor)
                self.num_tokens = self._count_tokens(descriptor)
            finally:
                os.close(descriptor)
            size = data.stat().st_size
        except FileNotFoundError as error:
            raise ShardError(
                f"{error.filename}: no such file; a token shard is a .bin and an .idx of the same name"
            ) from None
        if size != self.num_tokens * self.dtype.itemsize:
            raise ShardError(
                f"{data}: {size} bytes, but its index counts {self.num_tokens} tokens of "
                f"{self.dtype.itemsize} bytes "
                f"({self.num_tokens * self.dtype.itemsize})"
            )

    def _count_tokens(self, descriptor: int) -> int:
        """The end of the last document, from its offset and length."""
        if not self.num_documents:
            return 0
        (length,) = struct.unpack("<i", os.pread(descriptor, 4, HEADER.size + 4 * (self.num_documents - 1)))
        (offset,) = struct.unpack(
            "<q", os.pread(descriptor, 8, HEADER.size + 4 * self.num_documents + 8 * (self.num_documents - 1))
        )
        return offset // self.dtype.itemsize + length

    @cached_property
    def tokens(self) -> np.ndarray:
        return map_file(bin_path(self.prefix), self.dtype)

    @cached_property
    def _index(self) -> np.ndarray:
        return map_file(idx_path(self.prefix), np.dtype(np.uint8))

    @cached_property
    def lengths(self) -> np.ndarray:
        return self._index[HEADER.size : HEADER.size + 4 * self.num_documents].view("<i4")

    @cached_property
    def _offsets(self) -> np.ndarray:
        """The offset of each document in bytes, int64 [num_documents]."""
        return self._index[HEADER.size + 4 * self.num_documents : HEADER.size + 12 * self.num_documents].view(
            "<i8"
        )

    def document(self, i: int) -> np.ndarray:
        """The tokens of document i. Raises IndexError outside 0..num_documents - 1, ShardError if the index
        puts it outside the shard.
        """
        if not 0 <= i < self.num_documents:
            raise IndexError(f"{self.prefix} has {self.num_documents} documents; number {i} does not exist")
        start, length = int(self._offsets[i]) // self.dtype.itemsize, int(self.lengths[i])
        if not 0 <= start < start + length <= self.num_tokens:
            raise ShardError(
                f"{idx_path(self.prefix)}: document {i} has {length} tokens from {start} on; the shard has "
                f"{self.num_tokens}"
            )
        return self.tokens[start : start + length]

    def seconds(self, documents: np.ndarray) -> np.ndarray:
        """The second token of each of these documents, which must have one."""
        return self.tokens[self._offsets[documents] // self.dtype.itemsize + 1]

    def check_index(self) -> None:
        """Checks every length, offset and document start. Raises ShardError with the first wrong document."""
        index, itemsize = idx_path(self.prefix), self.dtype.itemsize
        starts = self._index[HEADER.size + 12 * self.num_documents :].view("<i8")
        end = 0
        for first in range(0, self.num_documents, CHECKED_TOGETHER):
            lengths = self.lengths[first : first + CHECKED_TOGETHER]
            for bad in np.flatnonzero(lengths <= 0)[:1]:
                raise ShardError(f"{index}: document {first + bad} has length {lengths[bad]}")
            offsets = self._offsets[first : first + CHECKED_TOGETHER]
            expected = (end + np.cumsum(lengths, dtype=np.int64) - lengths) * itemsize
            for bad in np.flatnonzero(offsets != expected)[:1]:
                raise ShardError(
                    f"{index}: document {first + bad} starts at byte {offsets[bad]}, but the lengths before "
                    f"it put it at {expected[bad]}"
                )
            end = int(expected[-1]) // itemsize + int(lengths[-1])
        for first in range(0, self.num_documents + 1, CHECKED_TOGETHER):
            found = starts[first : first + CHECKED_TOGETHER]
            if not np.array_equal(found, np.arange(first, first + len(found))):
                raise ShardError(
                    f"{index}: document starts are not 0..{self.num_documents}; one document must be one "
                    "sequence"
                )

    def check_ids(self, vocab_size: int) -> None:
        """Checks that every id is below `vocab_size`, reading all tokens. Raises ShardError with the first
        that is not, and its document.
        """
        for first in range(0, self.num_tokens, CHECKED_TOGETHER):
            tokens = self.tokens[first : first + CHECKED_TOGETHER]
            if int(tokens.max()) >= vocab_size:
                position = first + int(np.argmax(tokens >= vocab_size))
                document = np.searchsorted(self._offsets, position * self.dtype.itemsize, side="right") - 1
                raise ShardError(
                    f"{bin_path(self.prefix)}: document {document} holds id {int(self.tokens[position])}, "
                    f"but the vocabulary has {vocab_size}; this shard was made with another tokenizer"
                )

    def check_ends(self, bot_id: int, eot_id: int) -> None:
        """Checks that every document starts with `bot_id` and ends with `eot_id`. Raises ShardError with the
        first that does not. The index must be valid.
        """
        for first in range(0, self.num_documents, CHECKED_TOGETHER):
            begins = self._offsets[first : first + CHECKED_TOGETHER] // self.dtype.itemsize
            lasts = begins + self.lengths[first : first + CHECKED_TOGETHER] - 1
            for places, wanted, what in ((begins, bot_id, "starts"), (lasts, eot_id, "ends")):
                found = self.tokens[places]
                for bad in np.flatnonzero(found != wanted)[:1]:
                    raise ShardError(
                        f"{bin_path(self.prefix)}: document {first + bad} {what} with id {found[bad]}, not "
                        f"with {wanted}; "
                        "this shard was made with another tokenizer"
                    )


def _read_header(index: Path, descriptor: int) -> tuple[np.dtype, int]:
    header, size = os.pread(descriptor, HEADER.size, 0), os.fstat(descriptor).st_size
    if len(header) < HEADER.size:
        raise ShardError(f"{index}: {len(header)} bytes, shorter than a header of {HEADER.size}")
    magic, version, code, sequences, document_starts = HEADER.unpack(header)
    if magic != MAGIC:
        raise ShardError(f"{index}: does not start with MMIDIDX; this is not a Megatron index")
    if version != VERSION:
        raise ShardError(f"{index}: index version {version}; only version {VERSION} is supported")
    if code not in DTYPE_CODES:
        raise ShardError(f"{index}: dtype code {code}; token shards hold uint16 (8) or int32 (4)")
    if document_starts != sequences + 1:
        raise ShardError(
            f"{index}: {sequences} sequences but {document_starts} document starts; one document must be one "
            "sequence"
        )
    expected = HEADER.size + 12 * sequences + 8 * document_starts
    if size != expected:
        raise ShardError(
            f"{index}: {size} bytes, but {sequences} documents need {expected}; the file is truncated or "
            "has extra bytes"
        )
    return DTYPE_CODES[code], sequences


class TokenStream:
    """The concatenated shards of one corpus. Finding a position costs O(log shards)."""

    def __init__(self, prefixes: Sequence[Path]) -> None:
        self.shards = [Shard(prefix) for prefix in prefixes]
        self._begins = np.zeros(len(self.shards) + 1, np.int64)
        np.cumsum([shard.num_tokens for shard in self.shards], out=self._begins[1:])
        self._begins_to_search = self._begins.tolist()
        self.num_tokens = int(self._begins[-1])

    def window(self, start: int, length: int) -> np.ndarray:
        """Returns `length` tokens from `start`: a view within one shard, a copy across shards. Raises
        IndexError outside the stream.
        """
        if start < 0 or length < 0 or start + length > self.num_tokens:
            raise self._outside(start, length)
        pieces = []
        number = bisect_right(self._begins_to_search, start) - 1
        while length > 0:
            first = start - self._begins_to_search[number]
            piece = self.shards[number].tokens[first : first + length]
            pieces.append(piece)
            start, length, number = start + len(piece), length - len(piece), number + 1
        if len(pieces) == 1:
            return pieces[0]
        return np.concatenate(pieces) if pieces else np.zeros(0, np.uint16)

    def gather(self, starts: np.ndarray, out: np.ndarray, rows: np.ndarray) -> None:
        """Fills row rows[i] of `out` [any, length] with the `length` tokens from starts[i]. Raises
        IndexError if one is outside the stream.
        """
        length = out.shape[1]
        for start in starts[(starts < 0) | (starts + length > self.num_tokens)][:1]:
            raise self._outside(start, length)
        found = np.searchsorted(self._begins, starts, side="right") - 1
        begins = starts - self._begins[found]
        # Faster than one indexed copy per shard, which allocates the rows in the stored type each time.
        for row, shard, begin, end in zip(
            rows.tolist(), found.tolist(), begins.tolist(), (begins + length).tolist(), strict=True
        ):
            tokens = self.shards[shard].tokens
            if end <= len(tokens):
                out[row] = tokens[begin:end]
            else:
                out[row] = self.window(self._begins_to_search[shard] + begin, length)

    def documents(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields the starts (int64) and lengths (int32) of documents in blocks, across shards. Raises
        ShardError if an index is inconsistent.
        """
        held: list[np.ndarray] = []
        documents = begin = position = 0
        for shard in self.shards:
            expected = position + shard.num_tokens
            for first in range(0, shard.num_documents, READ_TOGETHER):
                lengths = np.array(shard.lengths[first : first + READ_TOGETHER])
                held.append(lengths)
                documents, position = documents + len(lengths), position + int(lengths.sum(dtype=np.int64))
                if documents >= BLOCK_DOCUMENTS or position - begin >= BLOCK_TOKENS:
                    yield _starts(begin, np.concatenate(held))
                    held, documents, begin = [], 0, position
            if position != expected:
                raise ShardError(
                    f"{idx_path(shard.prefix)}: the lengths of its documents do not add up to the "
                    f"{shard.num_tokens} tokens of the shard"
                )
        if held:
            yield _starts(begin, np.concatenate(held))

    def _outside(self, start: int, length: int) -> IndexError:
        return IndexError(f"tokens {start} to {start + length} are not in a stream of {self.num_tokens}")


def _starts(begin: int, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return begin + np.cumsum(lengths, dtype=np.int64) - lengths, lengths
