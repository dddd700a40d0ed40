"""The validation that training recorded in a checkpoint, so that nobody computes it again."""

from pathlib import Path
from typing import Any

import torch

from trainer.checkpoint import state, store
from trainer.checkpoint.store import CheckpointError
from trainer.config import RunConfig
from trainer.data.held_out import held_out
from trainer.model.attention import masks_documents
from trainer.model.precision import resolve
from trainer.system.errors import TrainerError

SCORES = ("loss", "perplexity", "bits_per_byte", "validation_tokens", "validation_bytes")


def recorded(checkpoint: Path, config: RunConfig, device: torch.device) -> dict[str, Any] | None:
    """What `evaluate` returned for the weights of `checkpoint`, in training. None if it would now compute
    something else on all held-out text of `config` on `device`, apart from rounding, or if that is not
    certain: `content` of a corpus is not set, or a file of the checkpoint has changed.
    """
    try:
        store.verify(checkpoint, ("hf/", "state.json"))
        saved = state.read_state(checkpoint)
    except (CheckpointError, TrainerError):
        return None
    found = saved["evaluation"]
    if found is None or not _computed_alike(saved["meaning"], config, device):
        return None
    texts = {corpus.corpus.name: corpus for corpus in held_out(config.data, config.training.seq_len)}
    sizes = {name: (corpus.tokens, corpus.text_bytes) for name, corpus in texts.items()}
    read = {
        name: (scores["validation_tokens"], scores["validation_bytes"])
        for name, scores in found["per_corpus"].items()
    }
    if read != sizes:
        return None
    per_corpus = {name: _in_order(found["per_corpus"][name]) for name in texts}
    return {**_in_order(found), "per_corpus": per_corpus}


def _computed_alike(meaning: dict[str, Any], config: RunConfig, device: torch.device) -> bool:
    """Whether a run of this identity evaluates on the same tokens and with the same computations.

    With fp8 it does not: training multiplies in 8 bits, a loaded model in 16.
    """
    then, data, now = meaning["training"], meaning["data"], config.training
    precision = resolve(now.precision, device)
    contents = {name: corpus["shards"] for name, corpus in data["corpora"].items()}
    return (
        precision == then["precision"] != "fp8"
        and masks_documents(now.document_masking, device) == then["document_masking"]
        and now.seq_len == then["seq_len"]
        and (config.data.tokenizer_sha256, config.data.bot_id) == (data["tokenizer_sha256"], data["bot_id"])
        and all(corpus.content is not None for corpus in config.data.corpora)
        and contents == {corpus.name: corpus.content for corpus in config.data.corpora}
    )


def _in_order(scores: dict[str, Any]) -> dict[str, Any]:
    """As `evaluate` returns them; state.json is sorted by name."""
    return {name: scores[name] for name in SCORES}
