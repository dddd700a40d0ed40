"""The compute, time and cost of a run on some GPUs, and the best run for a given time."""

from dataclasses import dataclass, replace
from typing import Self

from trainer.config import ModelConfig
from trainer.system.errors import TrainerError
from trainer.system.gpus import Gpu
from trainer.tools.planner import law
from trainer.tools.planner.roofline import Step
from trainer.tools.planner.shape import shaped

HOUR, DAY = 3600.0, 86_400.0


@dataclass(frozen=True)
class Machine:
    """`gpus` GPUs at `mfu` of their peak (model FLOPs utilisation), each for `price` USD an hour. A machine
    without a GPU is one whose `gpu` stands for the CPU.
    """

    gpu: Gpu
    gpus: int
    mfu: float
    price: float

    @property
    def flops(self) -> float:
        """Useful FLOPs per second of all GPUs together."""
        return self.gpus * self.gpu.flops * self.mfu

    def seconds_for(self, budget: float) -> float:
        """The training time that `budget` USD pay for."""
        return budget / (self.price * self.gpus) * HOUR


@dataclass(frozen=True)
class Run:
    """A model, its vocabulary and sequence length, and the tokens that it sees, on a machine."""

    machine: Machine
    model: ModelConfig
    vocab_size: int
    seq_len: int
    tokens: float

    @property
    def parameters(self) -> int:
        return self.model.parameters(self.vocab_size)

    @property
    def flops_per_token(self) -> int:
        """Includes attention between tokens, which the 6 N of the scaling law leaves out."""
        return self.model.flops_per_token(self.vocab_size, self.seq_len)

    @property
    def flops(self) -> float:
        return self.flops_per_token * self.tokens

    def mfu_of(self, step: Step) -> float:
        """The share of the machine's peak that such steps reach."""
        peak = self.machine.gpus * self.machine.gpu.flops
        return step.tokens_per_second * self.flops_per_token / peak

    @property
    def seconds(self) -> float:
        return self.flops / self.machine.flops

    @property
    def gpu_hours(self) -> float:
        return self.seconds / HOUR * self.machine.gpus

    @property
    def cost(self) -> float:
        """In USD."""
        return self.gpu_hours * self.machine.price

    @property
    def expected_loss(self) -> float:
        return law.expected_loss(self.parameters, self.tokens)

    def within(self, seconds: float) -> Self:
        """The same model on as many tokens as it sees in `seconds`."""
        return replace(self, tokens=seconds * self.machine.flops / self.flops_per_token)


def best_run(machine: Machine, seconds: float, vocab_size: int, seq_len: int) -> Run:
    """The model and tokens with the lowest expected loss after `seconds` on `machine`.

    Raises TrainerError when even the smallest model is too large, or when the scaling law does not hold for
    so little or so much compute.
    """
    parameters, tokens = law.best_for_compute(seconds * machine.flops)
    if not law.holds(parameters, tokens):
        raise TrainerError(
            f"the scaling law does not hold for {seconds * machine.flops:.1e} FLOPs, so it names no best "
            "model. Give --params, or a recipe"
        )
    return Run(machine, shaped(parameters, vocab_size), vocab_size, seq_len, tokens).within(seconds)
