"""`shards:` of a recipe."""

from pydantic import Field

from pipeline.store.params import Params


class ShardParams(Params):
    """Which documents are held out, a function of the document's id alone, made before tokenizing; and how
    long a shard gets.
    """

    validation_fraction: float = Field(
        0.02,
        gt=0,
        lt=0.5,
        description="Share of the documents of each corpus that is held out for validation.",
    )
    shard_tokens: int = Field(
        100_000_000, ge=1, description="Tokens per shard at most; a longer document has a shard of its own."
    )
