"""`mixture:` of a recipe."""

from pydantic import Field

from pipeline.store.params import Params


class MixtureParams(Params):
    """How corpora are weighed against each other where they have no weight of their own, and how often text
    may be repeated.
    """

    temperature: float = Field(
        1.0,
        ge=1,
        description="A corpus of n tokens counts as n^(1/temperature) (Conneau and Lample 2019): 1 takes all "
        "text alike, more raises small corpora.",
    )
    max_epochs: float | None = Field(
        None,
        gt=0,
        description="How often the text of a corpus may be seen; what is left over goes to the others.",
    )
