"""Reads batches from token shards: each process its own part of each global batch."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from trainer.config import CorpusShards, DataConfig, TrainingConfig
from trainer.data.held_out import held_out
from trainer.data.order import sample_order
from trainer.data.packing.document_stream import PIECE_WINDOWS, DocumentStream, DocumentWindows
from trainer.data.packing.packed_rows import PackedRows
from trainer.data.shards import Shard, ShardError, TokenStream, bin_path
from trainer.data.windows import StridedWindows
from trainer.system.errors import TrainerError

Windows = StridedWindows | PackedRows | DocumentWindows


class Sample(NamedTuple):
    """What a sample of a run holds: a window of a corpus, by its number, and its tokens from, up to in the
    stream of the corpus.
    """

    corpus: str
    window: int
    pieces: list[tuple[int, int]]


class TrainingData:
    """The windows of each corpus in the run's order. Packed rows, and the order of documents, are planned
    once and stored in `index_dir`.
    """

    def __init__(self, data: DataConfig, training: TrainingConfig, index_dir: Path) -> None:
        self._data = data
        self._curriculum = training.curriculum
        self._shuffles = training.control == "shuffled"
        self._objective = training.objective
        self.windows = [_windows(corpus, data.bot_id, training, index_dir) for corpus in data.corpora]
        self.order = sample_order(
            training,
            {corpus.name: corpus.weight for corpus in data.corpora},
            [windows.num_rows for windows in self.windows],
        )
        self._cut: dict[int, Sequence[Windows]] = {training.seq_len: self.windows}
        for seq_len in {self.order.part_len, *(stage.seq_len for stage in self._curriculum.stages)} - {
            training.seq_len
        }:
            self._cut[seq_len] = [one.cut(seq_len) for one in self.windows if not isinstance(one, PackedRows)]

    @property
    def padding(self) -> dict[str, float]:
        """The share of each corpus' windows that is empty."""
        return {
            name: round(windows.padding, 6)
            for name, windows in zip(self.order.names, self.windows, strict=True)
        }

    def corpus_tokens(self, steps: int) -> dict[str, int]:
        """The tokens of each corpus in the first `steps` steps."""
        tokens = self.order.tokens(self._curriculum.samples(steps))
        return dict(zip(self.order.names, tokens.tolist(), strict=True))

    def epochs(self) -> dict[str, float]:
        """How often each corpus will have been read at the end of the run."""
        read = self.corpus_tokens(self._curriculum.steps)
        return {
            name: round(read[name] / (size * self.order.seq_len), 3)
            for name, size in zip(self.order.names, self.order.sizes, strict=True)
        }

    def most_documents(self) -> int:
        """How many documents a window of the training or of a validation reads tokens of at most."""
        trained = (windows.most_documents for corpora in self._cut.values() for windows in corpora)
        packed, pairs = self._objective != "pretrain", self._objective == "dpo"
        validated = (part.most_documents for part in held_out(self._data, self.order.seq_len, packed=packed))
        return max(chain(trained, validated)) * (2 if pairs else 1)

    def batch(self, step: int, rank: int, world_size: int) -> np.ndarray:
        """This process's windows of the global batch of step `step` (from 0), int64 [global_batch_size /
        world_size, seq_len + 1] with the sizes of its stage, as `trainer.data.windows` describes them.

        Raises TrainerError with the document if an id is outside the vocabulary.
        """
        stage = self._curriculum.stage(step)
        rows = stage.global_batch_size // world_size
        first = self._curriculum.samples(step) + rank * rows
        corpora, numbers = self.order.windows(first, rows)
        batch = np.empty((rows, stage.seq_len + 1), dtype=np.int64)
        for corpus, windows in enumerate(self._cut[stage.seq_len]):
            mine = np.flatnonzero(corpora == corpus)
            windows.read(numbers[mine], batch, mine)
        if self._shuffles:
            for sample, row in enumerate(batch, start=first):
                text = (row >= 0) & (row != self._data.bot_id)  # no padding, and documents stay apart
                row[text] = np.random.default_rng([self.order.seed, sample]).permutation(row[text])
        if max(int(batch.max()), ~int(batch.min())) >= self._data.vocab_size:
            check_ids(self._data)
        return batch

    def pairs(self, step: int, rank: int, world_size: int) -> tuple[np.ndarray, np.ndarray]:
        """Which pairs of conversations the rows of `batch` hold: the corpus of each row, int64 [rows], and
        the numbers of its pairs, int64 [rows, most], -1 where a row has fewer.
        """
        rows = self._curriculum.stage(step).global_batch_size // world_size
        corpora, numbers = self.order.windows(self._curriculum.samples(step) + rank * rows, rows)
        packed = cast(list[PackedRows], self.windows)
        pairs = np.full((rows, max(one.most_pieces for one in packed)), -1, dtype=np.int64)
        for corpus, one in enumerate(packed):
            mine = np.flatnonzero(corpora == corpus)
            pairs[mine, : one.most_pieces] = one.numbered(numbers[mine])
        return corpora, pairs

    def sample(self, number: int) -> Sample:
        seq_len = self._curriculum.stage(self._curriculum.step_reading(number)).seq_len
        (corpus,), (window,) = self.order.windows(number, 1)
        starts, lengths = self._cut[seq_len][corpus].pieces(int(window))
        pieces = list(zip(starts.tolist(), (starts + lengths).tolist(), strict=True))
        return Sample(self.order.names[corpus], int(window), pieces)

    def holding(self, corpus: int, begin: int, end: int) -> np.ndarray:
        """The parts, as in `order.reads`, that hold any of a corpus's tokens `begin` to `end` - 1, int64."""
        most = self.order.parts(corpus, self._curriculum.samples(self._curriculum.steps))
        return self._cut[self.order.part_len][corpus].holding(begin, end, most)


def check_ids(data: DataConfig) -> None:
    """Reads all tokens. Raises TrainerError with the first id outside the vocabulary and its document."""
    for corpus in data.corpora:
        try:
            for prefix in (*corpus.train, *corpus.validation):
                Shard(prefix).check_ids(data.vocab_size)
        except ShardError as error:
            raise TrainerError(f"corpus {corpus.name!r}: {error}") from error


def _windows(corpus: CorpusShards, bot_id: int, training: TrainingConfig, index_dir: Path) -> Windows:
    stream, seq_len = TokenStream(corpus.train), training.seq_len
    if training.objective == "pretrain" and stream.num_tokens <= seq_len:
        raise TrainerError(
            f"corpus {corpus.name!r} has {stream.num_tokens} training tokens, too few for one window of "
            f"seq_len + 1 = {seq_len + 1}. "
            "Lower training.seq_len, add text, or leave the corpus out"
        )
    if training.packing == "windows":
        return StridedWindows(stream, seq_len)
    try:
        if training.packing == "best_fit":
            return PackedRows(stream, seq_len, bot_id, index_dir)
        name, longest = f"{training.seed}/{corpus.name}", PIECE_WINDOWS * seq_len
        documents = DocumentStream(stream, longest, name, _content(corpus), index_dir)
        return DocumentWindows(documents, seq_len, bot_id)
    except (OSError, ShardError) as error:
        raise TrainerError(f"corpus {corpus.name!r} cannot be packed: {error}") from error


def _content(corpus: CorpusShards) -> str:
    """Identifies the training tokens without reading them: if nobody says what they are, by when they were
    written.
    """
    files = [bin_path(prefix) for prefix in corpus.train]
    return corpus.content or repr([(str(file), file.stat().st_mtime_ns) for file in files])
