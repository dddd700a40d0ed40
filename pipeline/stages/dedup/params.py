"""The settings of deduplication, which are part of its fingerprint."""

from typing import Literal

from pydantic import Field

from pipeline.stages.text import UNICODE
from pipeline.store.params import Params

VERSION = f"dedup-5-{UNICODE}"
SEED = 1  # of the MinHash permutations
# Of a document, that its MinHash covers. Exact copies are found by their full text, whatever its length, and
# candidates are verified on it.
MAX_CHARS = 500_000


class DedupParams(Params):
    """Near duplicates within and across corpora are removed: MinHash LSH finds candidates (Broder 1997), and
    every candidate is verified exactly.
    """

    threshold: float = Field(0.8, gt=0, le=1)
    """Similarity (share, 0 to 1) from which two documents count as duplicates. Lower removes more."""
    measure: Literal["jaccard", "containment"] = "jaccard"
    """What `threshold` compares. `jaccard`: shared n-grams out of those of both documents. `containment`: the
    share of the removed document's n-grams that the kept one holds, which also removes an excerpt of a longer
    document.
    """
    ngram: int = Field(5, ge=1, le=100)
    """Words per n-gram; a document is compared as the set of its n-grams. Fewer words find looser copies. In
    Thai, Lao, Khmer, Burmese and Tibetan, which put no space between words, each character counts as a word.
    """
    bands: int = Field(32, ge=1, le=1024)
    """Number of LSH bands. Documents of Jaccard similarity s become candidates with probability 1 - (1 -
    s^rows)^bands: 0.85, 0.997 and 1.0 at s = 0.7, 0.8 and 0.9 for 32 bands of 8 rows. More bands find more of
    the duplicates and cost time and disk, never precision.
    """
    rows: int = Field(8, ge=1, le=1024)
    """MinHash values per band. More rows give fewer candidates, so less work, and miss more duplicates near
    the threshold.
    """

    @property
    def num_perm(self) -> int:
        return self.bands * self.rows
