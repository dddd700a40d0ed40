"""From token shards to batches: each process reads its own part of each global batch, one step ahead."""

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from trainer.config import DataConfig, TrainingConfig
from trainer.errors import TrainerError
from trainer.order import SampleOrder
from trainer.shards import TokenStream


class TrainingData:
    """The windows of seq_len + 1 tokens, at stride seq_len, of each corpus, in the run's order."""

    def __init__(self, data: DataConfig, training: TrainingConfig) -> None:
        self.seq_len = training.seq_len
        self.batch_size = training.global_batch_size
        self.streams = [TokenStream(corpus.train) for corpus in data.corpora]
        sizes = [max(0, stream.num_tokens - 1) // self.seq_len for stream in self.streams]
        for corpus, stream, size in zip(data.corpora, self.streams, sizes, strict=True):
            if not size:
                raise TrainerError(
                    f"corpus {corpus.name!r} has {stream.num_tokens} training tokens, too few for one window of seq_len + 1 = {self.seq_len + 1}; "
                    "lower training.seq_len, add text, or leave the corpus out"
                )
        self.order = SampleOrder(training.seed, [c.name for c in data.corpora], sizes, [c.weight for c in data.corpora])

    def batch(self, step: int, rank: int, world_size: int) -> np.ndarray:
        """This process's rows of the global batch of step `step` (from 0), int64 [batch_size / world_size, seq_len + 1]."""
        rows = self.batch_size // world_size
        corpora, windows = self.order.windows(step * self.batch_size + rank * rows, rows)
        batch = np.empty((rows, self.seq_len + 1), dtype=np.int64)
        for corpus, stream in enumerate(self.streams):
            mine = np.flatnonzero(corpora == corpus)
            stream.gather(windows[mine] * self.seq_len, batch, mine)
        return batch


class Prefetcher:
    """Reads the batch of the next step in one thread while the current one is computed."""

    def __init__(self, data: TrainingData, rank: int, world_size: int) -> None:
        self._data, self._rank, self._world_size = data, rank, world_size
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="batches")
        self._next: tuple[int, Future[np.ndarray]] | None = None

    def batch(self, step: int) -> np.ndarray:
        """As TrainingData.batch; asks for step + 1 before it returns."""
        if self._next is None or self._next[0] != step:
            self._next = (step, self._submit(step))
        batch = self._next[1].result()
        self._next = (step + 1, self._submit(step + 1))
        return batch

    def _submit(self, step: int) -> Future[np.ndarray]:
        return self._pool.submit(self._data.batch, step, self._rank, self._world_size)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
