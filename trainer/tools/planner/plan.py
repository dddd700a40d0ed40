"""What a run takes on some GPUs: operations, time, cost; and the best run for a given time or cost."""

import math
from dataclasses import dataclass, replace

from trainer.config import ModelConfig
from trainer.system.gpus import Gpu
from trainer.tools.planner.laws import ScalingLaw
from trainer.tools.planner.shape import shaped

HOUR, DAY = 3600.0, 86_400.0


@dataclass(frozen=True)
class Machine:
    """`gpus` GPUs at `mfu` of their peak (model FLOPs utilisation), each `price` USD an hour."""

    gpu: Gpu
    gpus: int
    mfu: float
    price: float

    @property
    def flops(self) -> float:
        """Of the model, a second."""
        return self.gpus * self.gpu.flops * self.mfu

    def seconds_for(self, budget: float) -> float:
        return budget / (self.price * self.gpus) * HOUR


@dataclass(frozen=True)
class Run:
    """A model, its vocabulary and sequence length, and the tokens it sees, on a machine."""

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
        """With those of attention itself, which the scaling laws' 6 N leaves out."""
        return self.model.flops_per_token(self.vocab_size, self.seq_len)

    @property
    def flops(self) -> float:
        return self.flops_per_token * self.tokens

    @property
    def seconds(self) -> float:
        return self.flops / self.machine.flops

    @property
    def gpu_hours(self) -> float:
        return self.seconds / HOUR * self.machine.gpus

    @property
    def cost(self) -> float:
        return self.gpu_hours * self.machine.price

    def expected_loss(self, law: ScalingLaw) -> float:
        return law.loss(self.parameters, self.tokens)

    def within(self, seconds: float) -> "Run":
        """The same model on as many tokens as it sees in `seconds`."""
        return replace(self, tokens=seconds * self.machine.flops / self.flops_per_token)


def best_run(machine: Machine, seconds: float, vocab_size: int, seq_len: int, law: ScalingLaw) -> Run:
    """The model and tokens of the lowest expected loss that `seconds` on `machine` allow. TrainerError when
    no model is small enough.
    """
    parameters, tokens = law.best_for_compute(seconds * machine.flops)
    return Run(machine, shaped(parameters, vocab_size), vocab_size, seq_len, tokens).within(seconds)


@dataclass(frozen=True)
class Smaller:
    """A smaller model that ends at the same loss. `tokens_served`: from how many on its cheaper inference has
    paid for its longer training.
    """

    parameters: float
    tokens: float
    training_flops: float
    tokens_served: float


def smaller_models(
    parameters: float, tokens: float, law: ScalingLaw, shares: tuple[float, ...] = (0.75, 0.5, 0.35, 0.25)
) -> list[Smaller]:
    """Those among `shares` of `parameters` that can reach the loss of `parameters` after `tokens` at all; 6 N
    D in training, 2 N a token served.
    """
    loss = law.loss(parameters, tokens)
    found = []
    for share in shares:
        size = share * parameters
        needed = law.tokens_for_loss(size, loss)
        if math.isinf(needed):
            break
        more = 6 * size * needed - 6 * parameters * tokens
        found.append(Smaller(size, needed, 6 * size * needed, max(0.0, more / (2 * (parameters - size)))))
    return found
