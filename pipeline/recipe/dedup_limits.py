"""`dedup_guard:` of a recipe."""

from pydantic import Field

from pipeline.store.params import Params


class DedupGuard(Params):
    """What deduplication may remove before the run stops for a person to look at it."""

    max_lost_share: float = Field(
        0.8, gt=0, le=1, description="Share (0 to 1) of a corpus's documents that deduplication may remove."
    )
    max_cluster_size: int = Field(
        10_000,
        ge=1,
        description="Most documents that one kept document may stand for, itself included. A larger cluster "
        "is often boilerplate, not duplicates.",
    )
