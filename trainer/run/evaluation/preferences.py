"""Preferences measured: the log-probabilities of pairs, and what a validation says of held-out ones."""

import math
from collections.abc import Callable, Sequence
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
from trainer.run.learnt_tokens import Answers
from trainer.system.history import perplexity


class EvaluationStoppedError(Exception):
    """The evaluation was stopped before its end."""


@torch.no_grad()
def scores(
    model: Llama,
    pairs: HeldOutRows,
    config: RunConfig,
    precision: Precision,
    world: World,
    gives_up: Callable[[], bool] = lambda: False,
) -> torch.Tensor:
    """Log p of the chosen and of the rejected answer of each pair, and their tokens: float64 [pairs, 4], zero
    for pairs in other rows. A collective; as `evaluate`, it may raise EvaluationStoppedError.
    """
    data, training = config.data, config.training
    rows, answers = training.micro_batch_windows, Answers.of(data, training)
    reference = torch.zeros(rows, pairs.rows.most_pieces, 2, device=world.device)
    found = torch.zeros(pairs.rows.num_pieces, 4, dtype=torch.float64, device=world.device)
    for number, windows in enumerate(pairs.batches(rows, world.data_rank, world.data_size)):
        if gives_up():
            release(model)
            raise EvaluationStoppedError
        if int(windows.max()) >= data.vocab_size:
            check_ids(data)
        tokens = torch.from_numpy(windows).to(world.device)
        batch = Batch.of(tokens, data.bot_id, answers=answers, reference=reference)
        with autocast(precision, world.device):
            values = answer_log_probabilities(model, model(batch.tokens, batch.documents), batch)
        first = (number * world.data_size + world.data_rank) * rows
        numbers = torch.from_numpy(pairs.rows.numbered(pairs.numbers[first : first + rows])).to(world.device)
        found[numbers[numbers >= 0]] = torch.cat(values, dim=-1)[: len(numbers)][numbers >= 0]
    release(model)
    return world.sum(found)


def evaluate_pairs(
    model: Llama,
    config: RunConfig,
    precision: Precision,
    world: World,
    references: Sequence[np.ndarray],
    gives_up: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """`loss` and the METRICS of held-out pairs against their `references`, fp32 [pairs, 2] of each corpus;
    `answer_loss` and `perplexity` of the chosen answers in nats per token, and `reference_answer_loss`
    likewise; `bits_per_byte` of all answers; and the same for each corpus under `per_corpus`.
    """
    training = config.training
    parts = held_out(config.data, training.seq_len, training.evaluation.max_tokens, packed=True)
    sums = {}
    for part, known in zip(parts, references, strict=True):
        assert isinstance(part, HeldOutRows)
        found = scores(model, part, config, precision, world, gives_up).cpu()
        answers, tokens = found[:, :2].float(), found[:, 2:]
        compared = pair_sums(answers, tokens, torch.from_numpy(np.array(known)), training.dpo).tolist()
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
