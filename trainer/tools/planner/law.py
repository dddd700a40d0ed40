"""The loss of a model of N parameters after D tokens: L(N, D) = E + A / N^alpha + B / D^beta.

The form is approach 3 of Hoffmann et al. 2022, "Training Compute-Optimal Large Language Models" (Chinchilla,
arXiv 2203.15556). Besiroglu et al. 2024, "Chinchilla Scaling: A replication attempt" (arXiv 2404.10102),
fitted the same runs again: the optimizer of the first fit had stopped too early, and its exponents are
rounded so far that the paper's own table A3 does not follow from them. The second fit agrees with approaches
1 and 2 of the paper, about 20 tokens for each parameter.

N counts all parameters, the embeddings too; D counts each token seen, and takes each for new text. The
computation is 6 N D floating-point operations, as in the paper. The loss is in nats per token of the authors'
text (MassiveText) and vocabulary (32,000 entries), so it tells plans apart, not what a run will reach.
"""

from dataclasses import dataclass

# The smallest and the largest model, and the fewest and the most tokens, in the fit.
FITTED_PARAMETERS, FITTED_TOKENS = (70e6, 16e9), (5e9, 500e9)


@dataclass(frozen=True)
class Law:
    """The constants of one fit, for N and D in units, not in billions."""

    source: str
    e: float
    a: float
    b: float
    alpha: float
    beta: float

    def loss(self, parameters: float, tokens: float) -> float:
        """The loss in nats per token."""
        return self.e + self.a / parameters**self.alpha + self.b / tokens**self.beta

    def optimum(self, parameters: float, tokens: float) -> tuple[float, float]:
        """The parameters and tokens with the least loss among those that take the same computation (Hoffmann
        et al., equation 4): there alpha A / N^alpha equals beta B / D^beta.
        """
        ratio = self.alpha * self.a / (self.beta * self.b)
        best = (ratio * (parameters * tokens) ** self.beta) ** (1 / (self.alpha + self.beta))
        return best, parameters * tokens / best


HOFFMANN = Law("Hoffmann et al. 2022", e=1.69, a=406.4, b=410.7, alpha=0.34, beta=0.28)
BESIROGLU = Law("Besiroglu et al. 2024", e=1.8172, a=482.01, b=2085.43, alpha=0.3478, beta=0.3658)


def extrapolates(parameters: float, tokens: float) -> bool:
    """Whether a plan lies outside the models and numbers of tokens that the laws were fitted to."""
    ranges = ((parameters, FITTED_PARAMETERS), (tokens, FITTED_TOKENS))
    return not all(low <= value <= high for value, (low, high) in ranges)
