"""`mixture:` of a recipe."""

from typing import Any

from pydantic import Field

from pipeline.store.params import Params


class SearchParams(Params):
    """A search for a mixture: small runs over random mixtures, and a law fitted to them. The job
    `search_mixture` runs it; nothing else depends on it.
    """

    runs: int = Field(
        24,
        ge=5,
        description="How many small runs. The first has the proportions of the recipe, the others shares "
        "drawn round them.",
    )
    target: dict[str, float] | None = Field(
        None,
        description="The corpora whose held-out loss is to be low, each with its weight. When not set, all "
        "alike.",
    )
    training: dict[str, Any] = Field(
        {},
        description="Settings of `training` that the small runs have instead of the recipe's: fewer tokens, "
        "a smaller model. With `threads`, as many runs go on at once as there are cores for.",
    )


class MixtureParams(Params):
    """How much of the training each corpus makes when the corpora have no weights of their own."""

    temperature: float = Field(
        1.0,
        ge=1,
        description="A corpus of n tokens gets a weight of n^(1/temperature) (Conneau and Lample 2019). At "
        "1 the weight is the size; higher values raise small corpora.",
    )
    max_epochs: float | None = Field(
        None,
        gt=0,
        description="Most epochs, passes over its text, that a corpus may be read for; what is left over "
        "goes to the other corpora. Needs enough text for `training.max_tokens`. When not set, no limit.",
    )
    search: SearchParams | None = Field(
        None,
        description="Small runs that look for a better mixture: docs/variants.md. When not set, there is no "
        "search.",
    )
