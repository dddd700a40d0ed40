"""`shards:` of a recipe."""

from pydantic import Field

from pipeline.store.params import MOST, Params


class ShardParams(Params):
    """Which documents are held out for validation, and how large a token file gets."""

    validation_fraction: float = Field(
        0.02,
        gt=0,
        lt=0.5,
        description="Share (0 to 1) of each corpus's documents that is held out for validation, chosen by a "
        "hash of the id.",
    )
    shard_tokens: int = Field(
        100_000_000,
        ge=1,
        le=MOST,
        description="Tokens per shard at most; a longer document gets a shard of its own.",
    )
