"""The proposal of a search for a mixture, as a table and as lines of a recipe."""

from collections.abc import Mapping
from typing import Any

Result = Mapping[str, Any]


def rows(result: Result) -> list[dict[str, str]]:
    """The share of each corpus in the recipe, and the proposed one with its interval."""
    return [
        {
            "corpus": name,
            "share in the recipe": f"{result['proportions'][name]:.1%}",
            "proposed": f"{share:.1%}",
            "95% interval": f"{result['low'][name]:.1%} to {result['high'][name]:.1%}",
        }
        for name, share in result["shares"].items()
    ]


def verdict(result: Result) -> str:
    """How far the law is to be trusted, and what it predicts."""
    errors = ", ".join(f"{name} {error:.2%}" for name, error in result["errors"].items())
    gain, low, high = result["gain"]
    corpora = ", ".join(result["edge"])
    edge = f" At the edge of what was tried or allowed: {corpora}." if corpora else ""
    nothing = "" if low > 0 else " So it may be no better than those."
    return (
        f"Law: {result['law']} (errors on runs that were held out: {errors}; rank correlation there "
        f"{result['rank']:.2f}). It predicts a loss of {result['loss']:.4f} for small runs of the proposal, "
        f"{gain:.2%} ({low:.2%} to {high:.2%}) below the {result['loss_of_proportions']:.4f} of the recipe's "
        f"shares.{nothing}{edge} `python -m pipeline decide base proposed --run` checks it."
    )


def as_recipe(result: Result) -> str:
    """The proposal as a variant."""
    shares = ", ".join(f"{name}: {{weight: {share:g}}}" for name, share in result["shares"].items())
    return f"seeds: 3\nvariants:\n  proposed: {{corpora: {{{shares}}}}}"
