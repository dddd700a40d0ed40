"""Pipeline parallelism: each process has one stage of the model; micro-batches pass through all of them. And
what differs between a stage and a model without stages: its parameters in full, and what is called.
"""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from trainer.config import ParallelConfig
from trainer.model.llama import Llama
from trainer.model.lora import merged_parameters
from trainer.model.precision import autocast
from trainer.parallel.dtensor import full_tensor

# (final hidden states of a micro-batch, its rows in the batch) -> the loss to differentiate.
MicroBatchLoss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def divided(n_layers: int, stages: int, head: float) -> list[range]:
    """The blocks of each stage, at least one. The head costs as much as `head` blocks, so the last stage
    gets fewer.
    """
    share = (n_layers + head) / stages
    ends = [min(int((stage + 1) * share + 0.5), n_layers - (stages - 1 - stage)) for stage in range(stages)]
    return [range(begin, end) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]


class Blocks(nn.Module):
    """One stage of the pipeline: consecutive blocks of a model. The first stage starts with the
    embedding, the last one ends with the norm and the head.
    """

    def __init__(self, number: int, model: Llama, parts: list[str], parallel: ParallelConfig) -> None:
        super().__init__()
        self.number = number
        self.blocks = nn.ModuleList(model.get_submodule(part) for part in parts if ".layers." in part)
        self.around = nn.ModuleList(model.get_submodule(part) for part in parts if ".layers." not in part)
        decoder = model.model
        self._embed, self._through = decoder.embed, decoder.through
        self._norm = decoder.norm if "lm_head" in parts else nn.Identity()
        self._precision, self._sequence_parts = model.precision, 1 if number == 0 else parallel.tp

    def forward(
        self, x: torch.Tensor, documents: torch.Tensor | None = None, dropout_keys: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The input of the next stage, or the final hidden states in the last stage.

        `x` is tokens [batch, length] in the first stage, else the output of the stage before.
        """
        length = x.shape[1] * self._sequence_parts
        with autocast(self._precision, x.device):
            if self.number == 0:
                x = self._embed(x, dropout_keys)
            return self._norm(self._through(self.blocks, x, length, documents, dropout_keys))


class PipelineModel(Llama):
    """The stage of a model that one of `processes` holds. Parameters keep their names; those of other stages
    do not exist here.
    """

    stage: Blocks

    def __init__(self, processes: DeviceMesh, parallel: ParallelConfig, **wanted: Any) -> None:
        """`wanted` are the arguments of Llama, on the meta device: absent stages never take memory."""
        super().__init__(**wanted)
        self._group, self._here = processes.get_group(), processes.get_local_rank()
        self._parallel = parallel
        self._schedules: dict[tuple[int, ...], Any] = {}
        self._loss: MicroBatchLoss
        stages = self._parts()
        self._process_of = {
            f"{part}.{name}": process
            for process, parts in enumerate(stages)
            for part in parts
            for name, _ in self.get_submodule(part).named_parameters()
        }
        # Not registered as a module: its parameters would have two names.
        self.__dict__["stage"] = Blocks(self._here, self, stages.pop(self._here), parallel)
        for parent, _, name in (part.rpartition(".") for parts in stages for part in parts):
            delattr(self.get_submodule(parent), name)

    def _parts(self) -> list[list[str]]:
        """The names of the modules of each stage."""
        block = sum(weight.numel() for weight in self.model.layers[0].parameters())
        blocks = divided(self.config.n_layers, self._parallel.pp, self.lm_head.weight.numel() / block)
        parts = [[f"model.layers.{block}" for block in its_blocks] for its_blocks in blocks]
        return [["model.embed_tokens", *parts[0]], *parts[1:-1], [*parts[-1], "model.norm", "lm_head"]]

    @property
    def has_head(self) -> bool:
        return self._here == self._parallel.pp - 1

    def forward(
        self, tokens: torch.Tensor, documents: torch.Tensor | None = None, *_: object, **__: object
    ) -> torch.Tensor:
        """Like `Llama.forward`, without gradients, cache or dropout. A collective.

        Only the process that `has_head` returns the final hidden states.
        """
        x = tokens
        if self._here > 0:
            x = torch.empty(self._hidden_shape(*tokens.shape), device=tokens.device)
            dist.recv(x, group=self._group, group_src=self._here - 1)
        x = self.stage(x, documents)
        if not self.has_head:
            dist.send(x, group=self._group, group_dst=self._here + 1)
        return x

    def add_gradients(
        self,
        tokens: torch.Tensor,
        documents: torch.Tensor | None,
        dropout_keys: torch.Tensor | None,
        micro_batches: int,
        loss: MicroBatchLoss,
    ) -> None:
        """Adds the gradients of `loss`, summed over `micro_batches` of a batch. A collective; `loss` is
        called only in the process that `has_head`.
        """
        rows, length = tokens.shape
        schedule = self._schedule(micro_batches, rows // micro_batches, length, tokens.device)
        self._loss = loss
        read = {"documents": documents, "dropout_keys": dropout_keys}
        schedule.step(
            *([tokens] if self._here == 0 else []),
            target=torch.arange(rows, device=tokens.device) if self.has_head else None,
            return_outputs=False,
            **{name: tensor for name, tensor in read.items() if tensor is not None},
        )

    def whole_parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Each parameter of the full model with its name, on every process, one at a time. A collective."""
        held = dict(self.named_parameters())
        for name, shape in self.shapes.items():
            tensor = (
                full_tensor(held[name]).detach() if name in held else torch.empty(shape, device=self.device)
            )
            dist.broadcast(tensor, group=self._group, group_src=self._process_of[name])
            yield name, tensor

    def _schedule(self, micro_batches: int, rows: int, length: int, device: torch.device) -> Any:
        """The 1F1B schedule for `micro_batches` of windows [rows, length] (Narayanan et al. 2021, arXiv
        2104.04473).
        """
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B

        key = (micro_batches, rows, length)
        if key not in self._schedules:
            tokens = torch.empty(rows, length, dtype=torch.int64, device="meta")
            hidden = torch.empty(self._hidden_shape(rows, length), device="meta", requires_grad=True)
            read = hidden if self._here else tokens
            processes = self._parallel.pp
            stage: Any = PipelineStage(
                self.stage, self._here, processes, device, read, hidden, group=self._group
            )
            # Losses are sums over all predicted tokens, so gradients must not be averaged over micro-batches.
            self._schedules[key] = Schedule1F1B(
                stage, micro_batches, lambda hidden, rows: self._loss(hidden, rows), scale_grads=False
            )
        return self._schedules[key]

    def _hidden_shape(self, rows: int, length: int) -> tuple[int, ...]:
        """The shape of the hidden states that one stage passes to the next."""
        return rows, length // self._parallel.tp, self.config.d_model


def whole_parameters(model: Llama) -> Iterator[tuple[str, torch.Tensor]]:
    """Each parameter of the model with its name, in full on every process and merged with its adapter, one at
    a time.

    A collective if the model is split.
    """
    if isinstance(model, PipelineModel):
        yield from model.whole_parameters()
    else:
        for name, parameter in merged_parameters(model):
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
        if hasattr(called, "reset_iter_state"):
            called.reset_iter_state()
        else:  # before PyTorch 2.13: as at the end of a backward pass, which clears the order too
            called._get_fsdp_state()._root_post_backward_final_callback()


def root(model: Llama) -> nn.Module:
    """The module that is called from outside."""
    return model.stage if isinstance(model, PipelineModel) else model
