"""The full parameters of a model that may be split over processes: reading them, and letting them go."""

import sys
from collections.abc import Iterator

import torch
from torch import nn

from trainer.model.llama import Llama
from trainer.parallel.dtensor import full_tensor
from trainer.parallel.pipeline_parallel import PipelineModel


def whole_parameters(model: Llama) -> Iterator[tuple[str, torch.Tensor]]:
    """Each parameter of the model with its name, in full on every process, one at a time.

    A collective if the model is split.
    """
    if isinstance(model, PipelineModel):
        yield from model.whole_parameters()
    else:
        for name, parameter in model.named_parameters():
            yield name, full_tensor(parameter)


def release(model: Llama) -> None:
    """Frees the full parameters that forward passes without a backward pass have gathered.

    Without it the next backward pass would also gather the last weights of those forward passes once more.
    """
    # A gathered parameter does not tell that it is one. The module takes a second to import.
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is None:
        return
    called = root(model)
    if isinstance(called, fsdp.FSDPModule):
        # Resharding alone would leave these passes in the order by which FSDP gathers ahead.
        called.reset_iter_state()


def root(model: Llama) -> nn.Module:
    """The module that is called from outside."""
    return model.stage if isinstance(model, PipelineModel) else model
