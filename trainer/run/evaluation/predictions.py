"""How well a model predicts each of some rows of tokens."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from trainer.config import RunConfig
from trainer.hf import load_model
from trainer.model.attention import masks_documents
from trainer.model.loss import IGNORED
from trainer.model.precision import autocast, resolve_precision
from trainer.run.batch import Batch
from trainer.system.errors import TrainerError


@torch.no_grad()
def predictions(
    checkpoint: Path, config: RunConfig, rows: np.ndarray, prompt: int
) -> Iterator[dict[str, float | int]]:
    """For each of `rows`, windows int64 [rows, length] as in `trainer.data.windows`: the mean `loss` in nats,
    and how many tokens after the first `prompt` the model `recites`: greedy decoding would write them.
    """
    model, training = load_model(checkpoint / "hf"), config.training
    # ~id stands for a token that is read but not predicted.
    largest = int(np.where(rows < 0, ~rows, rows).max(initial=0))
    if largest >= model.vocab_size or rows.shape[1] > model.max_length + 1:
        raise TrainerError(
            f"rows of {rows.shape[1]} tokens with ids up to {largest}: {checkpoint} has a vocabulary of "
            f"{model.vocab_size} and reads {model.max_length} tokens at a time"
        )
    device = model.device
    bot_id = config.data.bot_id if masks_documents(training.document_masking, device) else None
    for row in torch.from_numpy(rows).to(device):
        batch = Batch.of(row[None], bot_id)
        with autocast(resolve_precision(training.precision, device), device):
            logits = model.logits(model(batch.tokens, batch.documents))[0].float()
        loss = cross_entropy(logits, batch.targets[0], ignore_index=IGNORED)
        right = (logits.argmax(dim=-1) == batch.targets[0])[prompt - 1 :]
        yield {"loss": loss.item(), "recites": int(right.long().cumprod(dim=0).sum())}
