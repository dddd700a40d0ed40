"""Whether an exported model is read back as what it was made from, and computes the same in
`transformers`.
"""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch

from trainer.hf.export import load_model
from trainer.hf.weights import weights
from trainer.model.llama import Cache, Llama
from trainer.system.errors import TrainerError

TOKENS = 64
# Of logits in fp32, as a share of the largest.
ALLOWED_DIFFERENCE = 1e-4


@dataclass(frozen=True)
class ExportCheck:
    """What was read, whether all of it is finite, and how far its logits are from the reference's at most;
    None without a reference.
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
    """TrainerError when what is read from `directory` does not compute the logits of `model`. Takes the
    memory of a second model.
    """
    again = load_model(directory, model.lm_head.weight.device)
    found = _compare(again, _logits(model, _tokens(again)))
    if not found.passed:
        raise TrainerError(
            f"{directory}: the exported model's logits differ from the trained one's by "
            f"{found.difference:g}; do not use it"
        )


def check_with_transformers(directory: Path) -> ExportCheck:
    """The reference is what `transformers` makes of the same files, where it is installed and knows such
    a model.
    """
    ours = load_model(directory, torch.device("cpu"))
    comparable = find_spec("transformers") and not ours.config.not_stock
    return _compare(ours, _logits_of_transformers(directory, _tokens(ours)) if comparable else None)


def _compare(model: Llama, reference: torch.Tensor | None) -> ExportCheck:
    tensors = weights(model).values()
    difference, largest = None, 0.0
    if reference is not None:
        difference, largest = (
            (_logits(model, _tokens(model)) - reference).abs().max().item(),
            reference.abs().max().item(),
        )
    return ExportCheck(
        tensors=len(tensors),
        parameters=sum(tensor.numel() for tensor in tensors),
        finite=all(bool(tensor.isfinite().all()) for tensor in tensors),
        difference=difference,
        allowed_difference=ALLOWED_DIFFERENCE * max(1.0, largest),
    )


def _tokens(model: Llama) -> torch.Tensor:
    return (
        torch.arange(min(TOKENS, model.max_length), device=model.lm_head.weight.device)[None]
        * 37
        % model.vocab_size
    )


@torch.no_grad()
def _logits(model: Llama, tokens: torch.Tensor) -> torch.Tensor:
    # With a cache, blocks run as they are written, so no other shape is compiled.
    return model.logits(model(tokens, cache=Cache())).float()


@torch.no_grad()
def _logits_of_transformers(directory: Path, tokens: torch.Tensor) -> torch.Tensor:
    from transformers import AutoModelForCausalLM

    logits: torch.Tensor = (
        AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()(tokens).logits
    )
    return logits
