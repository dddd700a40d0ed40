"""Checks that an exported model computes the same as the trained one, here and in `transformers`."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch

from trainer.hf.directory import load_model, weights
from trainer.model.cache import KeyValueCache
from trainer.model.llama import Llama
from trainer.system.errors import TrainerError, reason

TOKENS = 64
# Between logits in fp32, as a share of the largest.
ALLOWED_DIFFERENCE = 1e-4


@dataclass(frozen=True)
class ExportCheck:
    """The result of a check: what was read, whether all of it is finite, and the largest `difference` of its
    logits from those of the reference; None without a reference.
    """

    tensors: int
    parameters: int
    finite: bool
    difference: float | None
    allowed_difference: float

    @property
    def passed(self) -> bool:
        return self.finite and (self.difference is None or self.difference <= self.allowed_difference)


def check_export(model: Llama, directory: Path) -> None:
    """Raises TrainerError when the export in `directory` does not compute the logits of `model`.

    Takes the memory of a second model.
    """
    exported, tokens = load_model(directory, model.device), _tokens(model)
    result = _compare(exported, tokens, _logits(model, tokens))
    if not result.passed:
        raise TrainerError(
            f"{directory}: the logits of the export differ from those of the trained model by "
            f"{result.difference:g}, more than {result.allowed_difference:g}; do not use this export"
        )


def check_with_transformers(directory: Path) -> ExportCheck:
    """Compares with `transformers`, where it is installed and computes such a model. Raises TrainerError for
    a model that one of both does not open.
    """
    model = load_model(directory, torch.device("cpu"))
    comparable, tokens = find_spec("transformers") and not model.config.attention_sinks, _tokens(model)
    return _compare(model, tokens, _logits_of_transformers(directory, tokens) if comparable else None)


def _compare(model: Llama, tokens: torch.Tensor, reference: torch.Tensor | None) -> ExportCheck:
    tensors = weights(model).values()
    difference, largest = None, 0.0
    if reference is not None:
        difference = (_logits(model, tokens) - reference).abs().max().item()
        largest = reference.abs().max().item()
    return ExportCheck(
        tensors=len(tensors),
        parameters=sum(tensor.numel() for tensor in tensors),
        finite=all(bool(tensor.isfinite().all()) for tensor in tensors),
        difference=difference,
        allowed_difference=ALLOWED_DIFFERENCE * max(1.0, largest),
    )


def _tokens(model: Llama) -> torch.Tensor:
    numbers = torch.arange(min(TOKENS, model.max_length), device=model.device)
    return numbers[None] * 37 % model.vocab_size


@torch.no_grad()
def _logits(model: Llama, tokens: torch.Tensor) -> torch.Tensor:
    # With a cache, blocks run uncompiled, so that no other shape is compiled.
    return model.logits(model(tokens, cache=KeyValueCache(tokens.shape[1]))).float()


@torch.no_grad()
def _logits_of_transformers(directory: Path, tokens: torch.Tensor) -> torch.Tensor:
    from transformers import AutoModelForCausalLM

    try:
        model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
        return model(tokens).logits
    except Exception as error:  # each setting that it does not take has its own class
        raise TrainerError(f"{directory}: transformers does not open the model: {reason(error)}") from error
