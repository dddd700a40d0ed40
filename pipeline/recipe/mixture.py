"""`mixture:` of a recipe."""

from pydantic import Field

from pipeline.store.params import Params


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
