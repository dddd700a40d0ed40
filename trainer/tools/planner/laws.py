"""The loss that a model of N parameters reaches after D tokens, L = E + A / N^alpha + B / D^beta, and the
best N and D for some compute.

N and D are plain counts, N with embeddings; the loss is in nats per token of the authors' data and
vocabulary, so trust differences, not levels.
"""

import math
from dataclasses import dataclass

FLOPS_PER_PARAMETER_AND_TOKEN = 6  # forward and backward, attention itself left out
# The models and tokens that Hoffmann et al. trained; what lies outside is extrapolation.
FITTED_PARAMETERS, FITTED_TOKENS = (70e6, 16e9), (5e9, 500e9)


@dataclass(frozen=True)
class ScalingLaw:
    """One fit of approach 3 of Hoffmann et al. 2022, "Training Compute-Optimal Large Language Models" (arXiv
    2203.15556).
    """

    source: str
    E: float
    A: float
    B: float
    alpha: float
    beta: float

    def loss(self, parameters: float, tokens: float) -> float:
        return self.E + self.A / parameters**self.alpha + self.B / tokens**self.beta

    def best_for_compute(self, flops: float) -> tuple[float, float]:
        """Parameters and tokens of the lowest loss with 6 N D = `flops`: the paper's equation 4."""
        ratio = (self.alpha * self.A / (self.beta * self.B)) ** (1 / (self.alpha + self.beta))
        product = flops / FLOPS_PER_PARAMETER_AND_TOKEN
        share = self.beta / (self.alpha + self.beta)
        return ratio * product**share, product ** (1 - share) / ratio

    def best_tokens(self, parameters: float) -> float:
        """The tokens at which `parameters` is the best size for the compute spent: there alpha A / N^alpha =
        beta B / D^beta.
        """
        return (self.beta * self.B * parameters**self.alpha / (self.alpha * self.A)) ** (1 / self.beta)

    def tokens_for_loss(self, parameters: float, loss: float) -> float:
        """The tokens after which a model of `parameters` reaches `loss`; infinite when it never does."""
        left = loss - self.E - self.A / parameters**self.alpha
        return (self.B / left) ** (1 / self.beta) if left > 0 else math.inf


LAWS = {
    # Besiroglu et al. 2024 (Epoch AI), arXiv 2404.10102, table 1: agrees with approaches 1 and 2 of the paper
    # it replicates.
    "epoch": ScalingLaw("Epoch AI 2024 re-fit", E=1.8172, A=482.01, B=2085.43, alpha=0.3478, beta=0.3658),
    "hoffmann": ScalingLaw(
        "Hoffmann et al. 2022, as printed", E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28
    ),
    # The digits of the paper's TeX source: its table A3 follows from these, not from the printed ones.
    "hoffmann-unrounded": ScalingLaw(
        "Hoffmann et al. 2022, unrounded", E=1.6934, A=406.4, B=410.7, alpha=0.3392, beta=0.2849
    ),
}
