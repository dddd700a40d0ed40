"""What a deduplication run is made of: part of its fingerprint."""

from typing import Literal

from pydantic import Field

from pipeline.store.params import Params

VERSION = "dedup-2"


class DedupParams(Params):
    """Similarity and its MinHash LSH estimate (Broder 1997).

    Two documents of Jaccard similarity s become candidates with probability 1 - (1 - s^rows)^bands: 0.85,
    0.997 and 1.0 at 0.7, 0.8 and 0.9 for the default 32 x 8. Every candidate is verified exactly, so bands
    buy recall and cost no precision.
    """

    threshold: float = Field(0.8, gt=0, le=1)
    measure: Literal["jaccard", "containment"] = "jaccard"
    ngram: int = Field(5, ge=1, le=100)
    bands: int = Field(32, ge=1, le=1024)
    rows: int = Field(8, ge=1, le=1024)
    seed: int = Field(1, ge=0, lt=2**32)
    max_chars: int = Field(500_000, ge=1)

    @property
    def num_perm(self) -> int:
        return self.bands * self.rows
