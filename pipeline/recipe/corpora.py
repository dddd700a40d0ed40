"""`corpora:` and `raw:` of a recipe."""

from pydantic import Field

from pipeline.sources import SourceConfig
from pipeline.store.params import Params


class Corpus(Params):
    """One corpus: where it comes from, and how much of the training mixture it makes."""

    name: str = Field(
        pattern=r"^[a-z][a-z0-9_]*$",
        description="Name of the corpus and of its assets: lower-case letters, digits and `_`, beginning "
        "with a letter.",
    )
    source: SourceConfig = Field(description="Where its documents come from, one of the source kinds.")
    weight: float | None = Field(
        None,
        gt=0,
        description="Weight in the training mixture, relative to those of the other corpora. Set it for "
        "every corpus or for none; when not set, `mixture` decides.",
    )


class RawParams(Params):
    """How a corpus is cut into parts."""

    part_bytes: int = Field(
        128_000_000,
        ge=1_000,
        le=10_000_000_000,
        description="UTF-8 bytes of text per part, the unit of work of every data stage. A worker holds "
        "about one part in memory: lower it when memory runs out.",
    )
