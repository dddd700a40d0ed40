"""The log-probabilities of preferences under the reference: computed once with the weights that a run starts
from, stored in its directory, and mapped when it resumes. And what the validation says of preferences.
"""

import hashlib
import json
import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch

from trainer.config import RunConfig
from trainer.data.held_out import HeldOutRows, held_out
from trainer.data.loader import TrainingData
from trainer.data.memmap import map_file
from trainer.data.packing.packed_rows import PackedRows
from trainer.data.shards import TokenStream
from trainer.model.llama import Llama
from trainer.parallel.world import World
from trainer.run.evaluation.preferences import Evaluation, scores
from trainer.run.resolve import Plan
from trainer.system import terminal
from trainer.system.durable import write_atomically
from trainer.system.errors import TrainerError
from trainer.system.wording import counted

DTYPE = np.dtype("<f4")
# Of the settings of a run, those that decide the log-probabilities.
DECISIVE = ("model", "pretrained", "init", "seed", "seq_len", "precision", "learn")

log = logging.getLogger("trainer")


@dataclass(frozen=True)
class Reference:
    """The reference of preferences: for each corpus the log-probabilities fp32 [pairs, 2] of chosen and
    rejected answers, of the pairs to train on and of those held out. Pairs are numbered as in the packed rows
    of the corpus.
    """

    trained: list[np.ndarray]
    held_out: list[np.ndarray]

    @classmethod
    def of(cls, model: Llama, plan: Plan, world: World) -> Self:
        """The reference that the run has stored; where it has none, that of the `model`, which is then
        stored. A collective.
        """
        config, data = plan.config, plan.data
        trained = [
            HeldOutRows(corpus, TokenStream(corpus.train), data.order.seq_len, np.arange(rows.num_rows), rows)
            for corpus, rows in zip(config.data.corpora, cast(list[PackedRows], data.windows), strict=True)
        ]
        parts = [*trained, *_held_out(config)]
        path, pairs = path_of(config.run_dir, plan.identity), [part.rows.num_pieces for part in parts]
        if world.any(not (path.is_file() and path.stat().st_size == sum(pairs) * 2 * DTYPE.itemsize)):
            started = time.perf_counter()
            with terminal.doing(f"computing the reference of {counted(sum(pairs), 'pairs')}"):
                evaluation = Evaluation(model, config, plan.precision, world)
                found = [scores(evaluation, part)[:, :2] for part in parts]
            values = torch.cat(found).float().cpu().numpy().astype(DTYPE)
            if world.is_main:
                write_atomically(path, values.tobytes())
                seconds = time.perf_counter() - started
                log.info(f"reference of {sum(pairs)} pairs in {seconds:.1f} s: {path}")
        else:
            values = map_file(path, DTYPE).reshape(-1, 2)
        each = np.split(values, np.cumsum(pairs)[:-1])
        return cls(each[: len(trained)], each[len(trained) :])

    def of_batch(self, data: TrainingData, world: World, step: int) -> torch.Tensor:
        """The log-probabilities for the rows of this process's batch, as `Batch` has them."""
        corpora, pairs = data.pairs(step, world.data_rank, world.data_size)
        values = np.zeros((*pairs.shape, 2), dtype=np.float32)
        for corpus, known in enumerate(self.trained):
            mine = (corpora == corpus)[:, None] & (pairs >= 0)
            values[mine] = known[pairs[mine]]
        return torch.from_numpy(values)


def path_of(run_dir: Path, identity: dict[str, Any]) -> Path:
    """Where a run keeps its reference. The name covers all that decides it: weights, shards, rows and
    precision.
    """
    decisive = {name: identity["training"][name] for name in DECISIVE} | {"data": identity["data"]}
    digest = hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()
    return run_dir / "reference" / f"{digest[:16]}.f32"


def held_out_of(checkpoint: Path, config: RunConfig, identity: dict[str, Any]) -> list[np.ndarray]:
    """The held-out part of the reference that a checkpoint's run stored. Raises TrainerError without it."""
    path = path_of(checkpoint.resolve().parents[1], identity)
    pairs = [part.rows.num_pieces for part in _held_out(config)]
    known, rest = divmod(path.stat().st_size if path.is_file() else 0, 2 * DTYPE.itemsize)
    if rest or known < sum(pairs):
        raise TrainerError(
            f"{path}: the reference of this run is missing or damaged, so its preferences cannot be "
            "measured: start its training again, which computes it"
        )
    return np.split(map_file(path, DTYPE).reshape(-1, 2)[-sum(pairs) :], np.cumsum(pairs)[:-1])


def _held_out(config: RunConfig) -> list[HeldOutRows]:
    return cast(list[HeldOutRows], held_out(config.data, config.training.seq_len, packed=True))
