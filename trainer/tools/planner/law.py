"""The loss of a model of N parameters after D tokens: L(N, D) = E + A / N^alpha + B / D^beta.

The form is approach 3 of Hoffmann et al. 2022, "Training Compute-Optimal Large Language Models" (Chinchilla,
arXiv 2203.15556). The constants are from table 1 of Besiroglu et al. 2024, "Chinchilla Scaling: A replication
attempt" (Epoch AI, arXiv 2404.10102), who fitted the same runs again.

Hoffmann's own constants are not used. Their optimizer averaged the loss over the runs instead of summing it
and so stopped before the minimum, and the exponents in the paper are rounded so far that the paper's own
table A3 does not follow from them. The corrected fit agrees with approaches 1 and 2 of the same paper: about
20 tokens for each parameter.

N counts the embeddings; D counts each token seen. The loss is in nats per token of the authors' text and
vocabulary, so trust differences between plans, not levels.
"""

E, A, B, ALPHA, BETA = 1.8172, 482.01, 2085.43, 0.3478, 0.3658
SOURCE = "the Chinchilla law as corrected by Epoch AI (2024)"
# The smallest and largest models and token counts in the fit; beyond them the law extrapolates.
FITTED_PARAMETERS, FITTED_TOKENS = (70e6, 16e9), (5e9, 500e9)
# Further away than by this factor it says nothing: of a model of a million parameters it expects a loss above
# that of guessing.
EXTRAPOLATED_BY = 10


def expected_loss(parameters: float, tokens: float) -> float:
    """In nats per token."""
    return E + A / parameters**ALPHA + B / tokens**BETA


def best_tokens(parameters: float) -> float:
    """The compute-optimal number of tokens: there alpha A / N^alpha equals beta B / D^beta."""
    return (BETA * B * parameters**ALPHA / (ALPHA * A)) ** (1 / BETA)


def covers(parameters: float, tokens: float, factor: float = 1) -> bool:
    """Whether a plan lies within the models and token counts that the law was fitted to, or outside
    them by at most a `factor`.
    """
    return all(
        low / factor <= value <= high * factor
        for value, (low, high) in ((parameters, FITTED_PARAMETERS), (tokens, FITTED_TOKENS))
    )
