"""The forward and the backward pass of a micro-batch as a CUDA graph, which a GPU repeats without its host.

For a small model the host takes longer to launch the kernels than the GPU takes to run them.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Self

import torch

from trainer.run.batch import Batch
from trainer.system.errors import first_line

# The gradients of a micro-batch's loss over a divisor are added to those of the parameters. Returns sums.
Work = Callable[[Batch, torch.Tensor], torch.Tensor]

# A graph keeps the memory of its micro-batch, so that an evaluation needs its own: with this share of the
# memory left, there is room for both.
MOST_MEMORY = 0.5

log = logging.getLogger("trainer")


class GradientGraph:
    """What `work` does with a micro-batch of the shapes of `like`. Parameters must not have gradients yet.

    Raises RuntimeError for work that cannot be captured.
    """

    def __init__(
        self, parameters: Iterable[torch.nn.Parameter], work: Work, like: Batch, divisor: torch.Tensor
    ) -> None:
        self._batch, self._divisor = like.clone(), divisor.clone()
        learning = [parameter for parameter in parameters if parameter.requires_grad]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            work(self._batch, self._divisor)  # what happens only once does not belong in the graph
        torch.cuda.current_stream().wait_stream(side)
        self._gradients = [
            (parameter, torch.zeros_like(parameter)) for parameter in learning if parameter.grad is not None
        ]
        self._attach()
        self._graph = torch.cuda.CUDAGraph()
        # Another thread may be writing a checkpoint.
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self._sums = work(self._batch, self._divisor)
        self._addresses = self._where()

    def fits(self, batch: Batch) -> bool:
        """Whether `batch` has the shapes of the graph's, and the weights are where they were."""
        ours, theirs = self._batch.tensors(), batch.tensors()
        return self._where() == self._addresses and {name: one.shape for name, one in ours.items()} == {
            name: one.shape for name, one in theirs.items()
        }

    def replay(self, batch: Batch, divisor: torch.Tensor) -> torch.Tensor:
        """The sums, which the next replay overwrites. Begins with gradients of zero where a parameter has
        none.
        """
        if any(parameter.grad is not gradient for parameter, gradient in self._gradients):
            self._attach()
        ours, theirs = self._batch.tensors(), batch.tensors()
        torch._foreach_copy_([*ours.values(), self._divisor], [*theirs.values(), divisor])
        self._graph.replay()
        return self._sums

    def _attach(self) -> None:
        gradients = [gradient for _, gradient in self._gradients]
        torch._foreach_zero_(gradients)
        torch._foreach_neg_(gradients)  # what is added to -0 keeps its bits, a -0 too
        for parameter, gradient in self._gradients:
            parameter.grad = gradient

    def _where(self) -> list[int]:
        return [parameter.data_ptr() for parameter, _ in self._gradients]


class GradientGraphs:
    """Does the work of micro-batches in graphs, and without them once that has failed."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        self._parameters = list(parameters)
        self._graph: GradientGraph | None = None
        self._fails = False

    @classmethod
    def where_there_is_room(cls, parameters: Iterable[torch.nn.Parameter]) -> Self | None:
        """Graphs for these parameters; None if a micro-batch took more than MOST_MEMORY of what this process
        can have of the GPU.
        """
        free, _ = torch.cuda.mem_get_info()
        room = free + torch.cuda.memory_reserved()
        return cls(parameters) if torch.cuda.max_memory_allocated() <= MOST_MEMORY * room else None

    @property
    def captured(self) -> bool:
        """Whether there is a graph: the last micro-batch was repeated by it."""
        return self._graph is not None

    def sums(self, work: Work, batch: Batch, divisor: torch.Tensor) -> torch.Tensor:
        """What `work` returns."""
        if self._graph is not None and not self._graph.fits(batch):
            self._graph = None  # its memory first
        if self._graph is None and not self._fails:
            try:
                self._graph = GradientGraph(self._parameters, work, batch, divisor)
            except RuntimeError as error:
                self._fails = True
                log.warning("micro-batches are not repeated as CUDA graphs: %s", first_line(error))
                for parameter in self._parameters:
                    parameter.grad = None
        return work(batch, divisor) if self._graph is None else self._graph.replay(batch, divisor)
