"""`checks:` and `dedup_guard:` of a recipe: the limits of the asset checks. They change no result."""

from typing import Literal

from pydantic import Field

from pipeline.store.params import MOST, Params


class CheckLimits(Params):
    """What the asset checks allow before a run is stopped or marked. Changes no result."""

    max_set_aside_share: float = Field(
        0.2,
        ge=0,
        le=1,
        description="Share (0 to 1) of a corpus that may be set aside because it cannot be read. A file, or "
        "a part of one, counts with its bytes.",
    )
    max_rejected_share: float = Field(
        0.95,
        gt=0,
        le=1,
        description="Share (0 to 1) of a corpus's documents that the quality rules may reject.",
    )
    max_pii_jump: float = Field(
        3.0,
        gt=1,
        description="Factor by which the personal data found per megabyte of a corpus may exceed that of "
        "the previous version.",
    )
    min_bytes_per_token: float = Field(
        1.0,
        gt=0,
        description="Fewest UTF-8 bytes of text per token, as a mean over a corpus. Below it, the tokenizer "
        "does not fit the corpus.",
    )
    max_bytes_per_token: float = Field(
        12.0,
        gt=0,
        description="Most UTF-8 bytes of text per token, as a mean over a corpus. Above it, the corpus "
        "repeats itself.",
    )
    shard_hashes: Literal["never", "once", "always"] = Field(
        "once",
        description="How often the files of token shards are read in full to compare their hashes: never, "
        "once and again where size, time or inode of a file have changed, or in every run. Sizes are always "
        "compared.",
    )


class DedupGuard(Params):
    """What deduplication may remove before the run stops for a person to look at it."""

    max_lost_share: float = Field(
        0.8, gt=0, le=1, description="Share (0 to 1) of a corpus's documents that deduplication may remove."
    )
    max_cluster_size: int = Field(
        10_000,
        ge=1,
        le=MOST,
        description="Most documents that one kept document may stand for, itself included. A larger cluster "
        "is often boilerplate, not duplicates.",
    )
