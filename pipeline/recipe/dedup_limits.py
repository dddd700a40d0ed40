"""`dedup_guard:` of a recipe."""

from pydantic import Field

from pipeline.store.params import Params


class DedupGuard(Params):
    """What dedup may remove before a person should look at it."""

    max_lost_share: float = Field(
        0.8, gt=0, le=1, description="Share of its documents that a corpus may lose."
    )
    max_cluster_size: int = Field(10_000, ge=1, description="Documents that one kept document may stand for.")
