"""Validation: the loss on held-out text, in nats per token and bits per byte of text."""

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trainer.checkpoint.state import read_state
from trainer.config import DataConfig, RunConfig, SamplesConfig, TrainingConfig
from trainer.config.model_files import TOKENIZER
from trainer.data.held_out import HeldOut, held_out
from trainer.hf import load_model
from trainer.hf.tokenizer import load_tokenizer
from trainer.model.attention import masks_documents
from trainer.model.precision import resolve_precision
from trainer.parallel.pipeline_parallel import release
from trainer.parallel.world import World
from trainer.run.batch import Batch
from trainer.run.evaluation.generate import complete_prompts
from trainer.run.evaluation.preferences import Evaluation, evaluate_pairs
from trainer.run.learned_tokens import Answers
from trainer.run.objectives import loss_sum
from trainer.run.reference import held_out_of
from trainer.system.errors import TrainerError
from trainer.system.run_history import perplexity

# Fixed, so that evaluating a checkpoint again gives the same continuations.
SAMPLE_SEED = 1


def evaluate(evaluation: Evaluation, references: Sequence[np.ndarray] | None = None) -> dict[str, Any] | None:
    """Returns `loss`, `perplexity`, `bits_per_byte`, `validation_tokens` (those predicted) and
    `validation_bytes`, and the same for each corpus under `per_corpus`; None if no corpus has validation
    shards.

    Reads every held-out token once or, with `training.evaluation.max_tokens`, those of `held_out`. Bits per
    byte are all nats, including those of [BOT] and [EOT], over ln 2 and the UTF-8 bytes of the text; None
    where the tokenizer does not give the text back. Of conversations all answers count, and beside them,
    other text only under `per_corpus`, unless the windows that are read hold no answer. With the `references`
    of preferences, the result is that of `evaluate_pairs`.

    May raise EvaluationStoppedError.
    """
    if references is not None:
        return evaluate_pairs(evaluation, references)
    model, world = evaluation.model, evaluation.world
    data, training = evaluation.config.data, evaluation.config.training
    answers = Answers.of(data, training.model_copy(update={"learn": "all"}))
    corpora = held_out(data, training.seq_len, training.evaluation.max_tokens, packed=answers is not None)
    if not corpora:
        return None
    sums = torch.zeros(len(corpora), 3, dtype=torch.float64, device=world.device)
    bot_id = data.bot_id if masks_documents(training.document_masking, world.device) else None
    rows = _batch_size(corpora, training, world)
    with torch.no_grad():
        for number, corpus in enumerate(corpora):
            for windows in corpus.batches(rows, world.data_rank, world.data_size):
                batch = Batch.of(evaluation.read(windows), bot_id, answers=answers)
                sums[number, 0] += loss_sum(model, batch, evaluation.precision)
                sums[number, 1] += batch.predicted
                sums[number, 2] += 1 if answers is None else answers.count(batch.tokens)
    release(model)
    totals = world.sum(world.from_last_stage(sums)).tolist()
    found = [(one.corpus, *total, one.text_bytes) for one, total in zip(corpora, totals, strict=True)]
    per_corpus = {
        corpus.name: _summary(nats=nats, tokens=tokens, text_bytes=size, lost=corpus.not_given_back)
        for corpus, nats, tokens, _, size in found
    }
    answering = [one for one in found if one[3]]
    counted, nats, tokens, _, sizes = zip(*(answering or found), strict=True)
    lost = max(corpus.not_given_back for corpus in counted)
    return {
        **_summary(nats=sum(nats), tokens=sum(tokens), text_bytes=sum(sizes), lost=lost),
        "per_corpus": per_corpus,
    }


def _batch_size(corpora: Sequence[HeldOut], training: TrainingConfig, world: World) -> int:
    """How many windows a process reads at a time: one size for all corpora, so that compiled blocks see one
    shape, and no more than training computes at a time, so that memory suffices.
    """
    most = max(max(1, -(-len(corpus.numbers) // world.data_size)) for corpus in corpora)
    trained = training.micro_batch_size
    return min(training.evaluation.micro_batch_size, most, most if trained == "auto" else trained)


def _knows_tokens_of(model: Path, data: DataConfig) -> bool:
    """Whether a model has all tokens of the data's tokenizer, under their ids: a model to whose tokenizer
    control tokens were appended reads the text of the model before.
    """
    path = data.tokenizer / TOKENIZER
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != data.tokenizer_sha256:
        return False  # nothing says how the text was tokenized
    known = load_tokenizer(model).get_vocab()
    return all(known.get(one) == number for one, number in load_tokenizer(data.tokenizer).get_vocab().items())


def _summary(*, nats: float, tokens: float, text_bytes: int, lost: float) -> dict[str, float | int | None]:
    loss = nats / max(1.0, tokens)
    return {
        "loss": loss,
        "perplexity": perplexity(loss),
        "bits_per_byte": nats / math.log(2) / text_bytes if lost == 0 else None,
        "validation_tokens": int(tokens),
        "validation_bytes": text_bytes,
    }


def evaluate_checkpoint(
    checkpoint: Path, config: RunConfig, samples: SamplesConfig | None = None
) -> dict[str, Any]:
    """Evaluates a checkpoint directory on all validation shards of `config`. With `samples` the result also
    holds the continuation of each prompt under `samples`.

    Raises TrainerError if there are no validation shards or the checkpoint cannot be read.
    """
    trained = read_state(checkpoint)["meaning"]
    same = config.data.tokenizer_sha256 == trained["data"]["tokenizer_sha256"]
    if not (same or _knows_tokens_of(checkpoint / "hf", config.data)):
        raise TrainerError(
            f"{checkpoint} was trained with another tokenizer than that of data.tokenizer, so it cannot read "
            "this held-out text: name the configuration of its run, or text that was tokenized alike"
        )
    model = load_model(checkpoint / "hf")
    everything = config.training.evaluation.model_copy(update={"max_tokens": None})
    config, alone = config.with_training(evaluation=everything), World(0, 1, model.device)
    precision = resolve_precision(config.training.precision, model.device)
    known = held_out_of(checkpoint, config, trained) if config.training.objective == "dpo" else None
    found = evaluate(Evaluation(model, config, precision, alone), known)
    if found is None:
        raise TrainerError("no corpus has validation shards: set data.corpora.<number>.validation")
    if samples is not None:
        texts = complete_prompts(model, checkpoint / "hf", samples, SAMPLE_SEED)
        found["samples"] = [one | {"text": one["text"].strip()} for one in texts]  # for cards and tables
    return found
