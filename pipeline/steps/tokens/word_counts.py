"""The kept text of all corpora -> the words that a tokenizer is trained on, counted piece by piece."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.stages import bpe, chat
from pipeline.stages.held_out import held_out, share_of
from pipeline.store import keys
from pipeline.store.engines.local import Engine
from pipeline.store.files import Scratch, StoredFile
from pipeline.store.parquet import Piece, kept_batches
from pipeline.store.parts import Counts, KeptPart, add, kept_parts
from pipeline.store.store import Store
from trainer.system.durable import whole_file

# Few parts are divided further, so that the default sample of 1 GB keeps 64 cores busy.
TASKS = 64
PIECE_BYTES = 8_000_000  # of a file, about 25 MB of text and half a second of counting


def of_sample(
    store: Store,
    engine: Engine,
    scratch: Scratch,
    corpora: Sequence[str],
    params: bpe.TokenizerParams,
    validation_fraction: float,
) -> tuple[bpe.CountedWords, Counts]:
    """The words of at most `sample_bytes` of text, and the documents and bytes of it. The text is chosen by
    id within each corpus. Held-out documents are left out.

    A task counts all that is chosen of its piece. Which pieces fit into what their corpus may give is found
    afterwards, and the first that does not fit is counted again, up to there. So the words and their order
    are those of one pass, whatever the pieces and the engine. Memory: the words of the sample and of a piece.
    """
    pieces, budgets = _pieces(store, corpora, params.sample_bytes)
    count = partial(_count, params=params, validation_fraction=validation_fraction)
    write = partial(_write, count=count, scratch=scratch)
    size = sum(piece.bytes for piece in pieces)
    totals = {"documents": 0, "text_bytes": 0}

    def fitting(results: Iterable[tuple[StoredFile, Counts]]) -> Iterator[bpe.CountedWords]:
        left: dict[str, int] = dict(budgets)
        for piece, (file, counts) in zip(pieces, results, strict=True):
            if piece.corpus in left:
                if counts["text_bytes"] <= left[piece.corpus]:
                    left[piece.corpus] -= counts["text_bytes"]
                    yield _read(file)
                else:
                    words, counts = count(piece, left.pop(piece.corpus))
                    yield words
                add(totals, counts)
            file.path.unlink(missing_ok=True)

    results = engine.map(write, pieces, input_bytes=size, what="tokenizer words")
    return bpe.added(fitting(results)), totals


@dataclass(frozen=True)
class _Piece:
    """Some row groups of a part, and the share of its documents that is chosen."""

    number: int
    corpus: str
    part: KeptPart
    piece: Piece
    share: float

    @property
    def name(self) -> str:
        return f"{self.corpus}/{self.part.name}, piece {self.piece[0] + 1} of {self.piece[1]}"

    @property
    def bytes(self) -> int:
        return self.part.bytes // self.piece[1]


def _pieces(store: Store, corpora: Sequence[str], sample_bytes: int) -> tuple[list[_Piece], dict[str, int]]:
    """The tasks, and the bytes that each corpus may give."""
    sizes = {corpus: store.current(keys.scrubbed(corpus)).counts["text_bytes"] for corpus in corpora}
    budgets = bpe.budgets(sizes, sample_bytes)
    parts = [(corpus, part) for corpus in corpora for part in kept_parts(store, corpus)]
    most = max(1, TASKS // max(len(parts), 1))
    pieces: list[_Piece] = []
    for corpus, part in parts:
        count = max(1, min(most, part.bytes // PIECE_BYTES))
        share = budgets[corpus] / max(sizes[corpus], 1)
        for number in range(count):
            pieces.append(_Piece(len(pieces), corpus, part, (number, count), share))
    return pieces, budgets


def _count(
    piece: _Piece, budget: int | None, params: bpe.TokenizerParams, validation_fraction: float
) -> tuple[bpe.CountedWords, Counts]:
    """The words of the first documents that are chosen, up to `budget` bytes if there is one."""
    counts: Counts = {"documents": 0, "text_bytes": 0}
    documents = kept_batches(piece.part.documents, piece.part.verdicts, ["id", "text"], piece.piece)
    chosen = partial(_chosen, validation_fraction=validation_fraction, share=piece.share)
    texts = sample(map(chosen, documents), budget, counts)
    return bpe.count_words(texts, params.pattern, params.single_digits), counts


def _chosen(documents: pa.RecordBatch, validation_fraction: float, share: float) -> pa.Array:
    ids = documents.column("id")
    taken = ~held_out(ids, validation_fraction) & (share_of(ids, "tokenizer") < share)
    return chat.contents(documents.column("text").filter(pa.array(taken)))


def sample(texts: Iterable[pa.Array], budget: int | None, counts: Counts) -> Iterator[pa.Array]:
    """Yields and counts the first texts of `budget` bytes, or all, cut to MAX_DOCUMENT_CHARS."""
    for column in texts:
        cut = pc.utf8_slice_codeunits(column, 0, bpe.MAX_DOCUMENT_CHARS)
        used = np.cumsum(pc.binary_length(cut).to_numpy())
        fitting = len(cut) if budget is None else int(np.searchsorted(used, budget, side="right"))
        size = int(used[fitting - 1]) if fitting else 0
        add(counts, {"documents": fitting, "text_bytes": size})
        yield cut[:fitting]
        if fitting < len(cut):
            return
        budget = None if budget is None else budget - size


def _write(
    piece: _Piece, count: partial[tuple[bpe.CountedWords, Counts]], scratch: Scratch
) -> tuple[StoredFile, Counts]:
    words, counts = count(piece, None)
    batch = words.batch()
    path = scratch.path / f"words-{piece.number}.arrow"
    with whole_file(path) as temporary, pa.ipc.new_file(str(temporary), batch.schema) as writer:
        writer.write_batch(batch)
    return scratch.written(path), counts


def _read(file: StoredFile) -> bpe.CountedWords:
    with file.open() as opened:
        return bpe.CountedWords.of_batch(pa.ipc.open_file(opened).get_batch(0))
