"""Documents of all corpora by the parts that they belong to."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipeline.stages import dedup
from pipeline.steps.dedup.shuffle import Written, write_divided
from pipeline.store.files import Scratch


@dataclass(frozen=True)
class Layout:
    """Where documents belong: the first document of each part (int64), the corpora by priority, and a
    directory for documents by part.
    """

    starts: np.ndarray
    corpora: tuple[str, ...]
    scratch: Scratch

    @property
    def bits(self) -> int:
        """How many bits number the parts."""
        return (len(self.starts) - 1).bit_length()

    def parts(self, rows: np.ndarray) -> np.ndarray:
        """The numbers of the parts of documents, by global row."""
        return np.searchsorted(self.starts, rows, side="right") - 1

    def write(self, name: str, rows: pa.RecordBatch) -> Written:
        """Divides documents by part. `rows` has their global rows as `row`."""
        keys = self.parts(rows.column("row").to_numpy()).astype(np.uint64) << np.uint64(64 - self.bits)
        return write_divided(self.scratch, name, rows.add_column(0, "key", pa.array(keys)), self.bits)

    def decided(self, clusters: dedup.Clusters, verified: dedup.Verified) -> pa.RecordBatch:
        """The decisions on all documents of the clusters, with the corpus of the survivor as `home`."""
        decided = dedup.decide(clusters, verified)
        homes = pa.array(self.corpora, pa.string()).take(decided.column("priority"))
        return decided.drop_columns("priority").append_column("home", homes)
