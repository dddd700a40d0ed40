"""How far a stream of documents is in the files that it comes from."""

from collections.abc import Mapping
from pathlib import PurePath

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.store.parts import text_bytes

# Bytes of text for each byte of a file, until a file was read to its end and one knows better.
PACKED, PLAIN = 3.0, 1.0
PACKED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".parquet")


class InputBytes:
    """Bytes of input files read so far, as the files are on disk: exact where a file ends, in between by the
    text that came out of it.
    """

    def __init__(self, sizes: Mapping[str, int]):
        """`sizes`: bytes of each file by name, in the order in which they are read."""
        self.total = sum(sizes.values())
        self._sizes = sizes
        self._before = 0  # bytes of the files that are done
        self._text = 0  # bytes of text that came out of all files
        self._file = next(iter(sizes))
        self._text_of_file = 0

    def after(self, documents: pa.RecordBatch) -> int:
        """How many bytes are done with this batch."""
        sources = documents.column("source")
        last = sources[-1].as_py()
        if last != self._file:
            names = list(self._sizes)
            self._before = sum(self._sizes[name] for name in names[: names.index(last)])
            self._file, self._text_of_file = last, 0
        self._text += text_bytes(documents)
        self._text_of_file += text_bytes(documents.filter(pc.equal(sources, last)))
        return self._before + min(self._sizes[last], round(self._text_of_file / self._expansion()))

    def _expansion(self) -> float:
        if self._before:
            return max((self._text - self._text_of_file) / self._before, 0.01)
        return PACKED if PurePath(self._file).suffix in PACKED_SUFFIXES else PLAIN
