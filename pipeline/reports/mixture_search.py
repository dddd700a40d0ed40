"""What a search for a mixture found: its proposal as a table and as lines of a recipe."""

from collections.abc import Mapping
from typing import Any

Found = Mapping[str, Any]


def rows(found: Found) -> list[dict[str, str]]:
    """The share of each corpus in the recipe, and the proposed one with its interval."""
    return [
        {
            "corpus": name,
            "share in the recipe": f"{found['proportions'][name]:.1%}",
            "proposed": f"{share:.1%}",
            "95% interval": f"{found['low'][name]:.1%} to {found['high'][name]:.1%}",
        }
        for name, share in found["shares"].items()
    ]


def verdict(found: Found) -> str:
    """How far the law is to be trusted, and what it predicts."""
    errors = ", ".join(f"{name} {error:.2%}" for name, error in found["errors"].items())
    gain, low, high = found["gain"]
    edge = f" At the edge of what was tried or allowed: {', '.join(found['edge'])}." if found["edge"] else ""
    nothing = "" if low > 0 else " So it may be no better than those."
    return (
        f"Law: {found['law']} (errors on runs that were held out: {errors}; rank correlation there "
        f"{found['rank']:.2f}). It predicts a loss of {found['loss']:.4f} for small runs of the proposal, "
        f"{gain:.2%} ({low:.2%} to {high:.2%}) below the {found['loss_of_proportions']:.4f} of the recipe's "
        f"shares.{nothing}{edge} `python -m pipeline decide base proposed --run` checks it."
    )


def as_recipe(found: Found) -> str:
    """The proposal as a variant."""
    shares = ", ".join(f"{name}: {{weight: {share:g}}}" for name, share in found["shares"].items())
    return f"seeds: 3\nvariants:\n  proposed: {{corpora: {{{shares}}}}}"
