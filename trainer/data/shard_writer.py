"""Writes token shards in the format that `trainer.data.shards` describes and reads."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from trainer.data.shards import DTYPE_CODES, HEADER, MAGIC, MAX_ID, VERSION, bin_path, idx_path
from trainer.system.durable import atomic_file, sync

MAX_DOCUMENT_TOKENS = 2**31 - 1


def token_dtype(max_id: int) -> np.dtype:
    """The smallest token type that holds ids up to `max_id`: uint16 or uint32. Raises ValueError if the id is
    negative or at least 2^31.
    """
    if not 0 <= max_id <= MAX_ID:
        raise ValueError(f"token id {max_id} cannot be stored: ids range from 0 to {MAX_ID}")
    return DTYPE_CODES[8] if max_id <= 0xFFFF else DTYPE_CODES[4]


class ShardWriter(ExitStack):
    """Writes `<prefix>.bin` and `<prefix>.idx`; both get these names only when the context is left without an
    error.

    `.bin` is renamed before `.idx`, so a shard with an `.idx` is complete.
    """

    def __init__(self, prefix: Path, dtype: np.dtype) -> None:
        super().__init__()
        self.prefix = Path(prefix)
        self.dtype = np.dtype(dtype).newbyteorder("<")
        self._max_id = min(int(np.iinfo(self.dtype).max), MAX_ID)
        self._lengths: list[np.ndarray] = []
        self._documents = 0
        self.enter_context(self._files())

    def add(self, tokens: np.ndarray) -> None:
        """Adds a document, `tokens` [n] of any integer type. Raises ValueError if it is empty or an id does
        not fit.
        """
        self.add_documents(tokens, np.array([len(tokens)]))

    def add_documents(self, tokens_flat: np.ndarray, lengths: np.ndarray) -> None:
        """Adds concatenated documents: `tokens_flat` [sum of lengths], `lengths` [documents]. Raises
        ValueError with the document and the id.
        """
        tokens_flat, lengths = np.asarray(tokens_flat), np.asarray(lengths, dtype=np.int64)
        self._check(tokens_flat, lengths)
        self._bin.write(tokens_flat.astype(self.dtype, copy=False).tobytes())
        self._lengths.append(lengths.astype("<i4"))
        self._documents += len(lengths)

    def _check(self, tokens: np.ndarray, lengths: np.ndarray) -> None:
        for bad in np.flatnonzero((lengths <= 0) | (lengths > MAX_DOCUMENT_TOKENS))[:1]:
            raise ValueError(
                f"{self.prefix}: document {self._documents + bad} has {lengths[bad]} tokens; a document has "
                f"1 to {MAX_DOCUMENT_TOKENS}"
            )
        if len(tokens) and (int(tokens.min()) < 0 or int(tokens.max()) > self._max_id):
            position = int(np.flatnonzero((tokens < 0) | (tokens > self._max_id))[0])
            document = self._documents + int(np.searchsorted(np.cumsum(lengths), position, side="right"))
            raise ValueError(
                f"{self.prefix}: document {document} holds id {int(tokens[position])}, which does not fit "
                f"{self.dtype} (0 to {self._max_id})"
            )

    @contextmanager
    def _files(self) -> Iterator[None]:
        """Opens `.bin`; writes the index when the context is left."""
        with atomic_file(idx_path(self.prefix)) as index, atomic_file(bin_path(self.prefix)) as tokens:
            with tokens.open("wb") as self._bin:
                yield
            code = next(code for code, known in DTYPE_CODES.items() if known == self.dtype)
            lengths = np.concatenate([np.zeros(0, "<i4"), *self._lengths])
            offsets = np.zeros(len(lengths), "<i8")
            np.cumsum(lengths[:-1].astype(np.int64) * self.dtype.itemsize, out=offsets[1:])
            with index.open("wb") as file:
                file.write(HEADER.pack(MAGIC, VERSION, code, len(lengths), len(lengths) + 1))
                for part in (lengths, offsets, np.arange(len(lengths) + 1, dtype="<i8")):
                    file.write(part.tobytes())
        sync(self.prefix.parent)
