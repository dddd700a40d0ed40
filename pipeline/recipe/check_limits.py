"""What the checks of a recipe allow. None of it changes what is made."""

from typing import Literal

from pydantic import Field

from pipeline.store.params import Params


class CheckLimits(Params):
    """Beyond these a run stops, or is marked, until a person has looked."""

    max_set_aside_share: float = Field(
        0.2, ge=0, le=1, description="Share of its rows that a corpus may lose because they cannot be read."
    )
    max_rejected_share: float = Field(
        0.95, gt=0, le=1, description="Share of its documents that quality may reject of a corpus."
    )
    max_pii_jump: float = Field(
        3.0,
        gt=1,
        description="How many times the PII of a corpus may have become more, per byte, since the version "
        "before.",
    )
    min_bytes_per_token: float = Field(
        1.0, gt=0, description="A tokenizer below this does not fit the corpus."
    )
    max_bytes_per_token: float = Field(12.0, gt=0, description="A corpus above this repeats itself.")
    shard_hashes: Literal["never", "once", "always"] = Field(
        "once", description="When shards are read again in full; sizes are always compared."
    )
