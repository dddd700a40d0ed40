"""Preferences measured: the log-probabilities of pairs, and what a validation says of held-out ones."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from trainer.config import RunConfig
from trainer.data.held_out import HeldOutRows, held_out
from trainer.data.loader import check_ids
from trainer.model.llama import Llama
from trainer.model.precision import Precision, autocast
from trainer.parallel.pipeline_parallel import release
from trainer.parallel.world import World
from trainer.run.batch import Batch
from trainer.run.dpo_loss import METRICS, answer_log_probabilities, pair_sums
from trainer.run.learned_tokens import Answers
from trainer.system.run_history import perplexity


class EvaluationStoppedError(Exception):
    """The evaluation was stopped before its end."""


@dataclass(frozen=True)
class Evaluation:
    """A model, and how it is evaluated. It is stopped as soon as `gives_up`, which all processes call before
    each batch, is true.
    """

    model: Llama
    config: RunConfig
    precision: Precision
    world: World
    gives_up: Callable[[], bool] = lambda: False

    def read(self, windows: np.ndarray) -> torch.Tensor:
        """The windows, on the device. Raises EvaluationStoppedError."""
        if self.gives_up():
            release(self.model)
            raise EvaluationStoppedError
        if int(windows.max()) >= self.config.data.vocab_size:
            check_ids(self.config.data)
        return torch.from_numpy(windows).to(self.world.device)


@torch.no_grad()
def scores(evaluation: Evaluation, pairs: HeldOutRows) -> torch.Tensor:
    """Log p of the chosen and of the rejected answer of each pair, and their tokens: float64 [pairs, 4], zero
    for pairs in other rows. A collective; it may raise EvaluationStoppedError.
    """
    model, world = evaluation.model, evaluation.world
    data, training = evaluation.config.data, evaluation.config.training
    rows, answers = training.micro_batch_windows, Answers.of(data, training)
    reference = torch.zeros(rows, pairs.rows.most_pieces, 2, device=world.device)
    found = torch.zeros(pairs.rows.num_pieces, 4, dtype=torch.float64, device=world.device)
    for number, windows in enumerate(pairs.batches(rows, world.data_rank, world.data_size)):
        batch = Batch.of(evaluation.read(windows), data.bot_id, answers=answers, reference=reference)
        with autocast(evaluation.precision, world.device):
            values = answer_log_probabilities(model, model(batch.tokens, batch.documents), batch)
        first = (number * world.data_size + world.data_rank) * rows
        numbers = torch.from_numpy(pairs.rows.numbered(pairs.numbers[first : first + rows])).to(world.device)
        found[numbers[numbers >= 0]] = torch.cat(values, dim=-1)[: len(numbers)][numbers >= 0]
    release(model)
    return world.sum(found)


def evaluate_pairs(evaluation: Evaluation, references: Sequence[np.ndarray]) -> dict[str, Any]:
    """`loss` and the METRICS of held-out pairs against their `references`, fp32 [pairs, 2] of each corpus;
    `answer_loss` and `perplexity` of the chosen answers in nats per token, and `reference_answer_loss`
    likewise; `bits_per_byte` of all answers; and the same for each corpus under `per_corpus`.
    """
    training = evaluation.config.training
    parts = held_out(evaluation.config.data, training.seq_len, training.evaluation.max_tokens, packed=True)
    sums = {}
    for part, known in zip(parts, references, strict=True):
        assert isinstance(part, HeldOutRows)
        found = scores(evaluation, part).cpu()
        answers, tokens = found[:, :2].float(), found[:, 2:]
        compared = pair_sums(
            answers, tokens=tokens, reference=torch.from_numpy(np.array(known)), dpo=training.dpo
        ).tolist()
        chosen = [(tokens[:, 0] > 0).sum(), answers[:, 0].sum(), tokens[:, 0].sum()]
        more = torch.stack([*chosen, answers.sum(), tokens.sum()]).tolist()
        sums[part.corpus.name] = torch.tensor([*compared, *more, part.text_bytes], dtype=torch.float64)
    lost = {part.corpus.name: part.corpus.not_given_back for part in parts}
    per_corpus = {name: _summary(total.tolist(), lost[name]) for name, total in sums.items()}
    total = torch.stack(list(sums.values())).sum(dim=0).tolist()
    return {**_summary(total, max(lost.values())), "per_corpus": per_corpus}


def _summary(sums: list[float], lost: float) -> dict[str, float | int | None]:
    *means, pairs, chosen, tokens, log_p, all_tokens, text_bytes = sums
    return {
        **{name: value / pairs for name, value in zip(("loss", *METRICS), means, strict=True)},
        "pairs": int(pairs),
        "answer_loss": -chosen / tokens,
        "reference_answer_loss": (means[METRICS.index("chosen_change") + 1] - chosen) / tokens,
        "perplexity": perplexity(-chosen / tokens),
        "bits_per_byte": -log_p / math.log(2) / text_bytes if lost == 0 else None,
        "validation_tokens": int(all_tokens),
        "validation_bytes": int(text_bytes),
    }
