"""`checks:` and `dedup_guard:` of a recipe: the limits of the asset checks. They change no result."""

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
