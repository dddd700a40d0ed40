"""Texts as lines, and the texts without some of them."""

from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.stages.text import utf8_arrays
from pipeline.store.params import required

CUTS_SCHEMA = required(
    id=pa.string(), start=pa.int64(), end=pa.int64(), rule=pa.string(), text=pa.large_string()
)
_NEWLINE = ord("\n")


class Lines(NamedTuple):
    """The lines of a column of texts, one after the other without a gap; each ends with its newline.

    Line i is `data[starts[i]:starts[i + 1]]`, of document `rows[i]`; document d has the lines
    `first[d]:first[d + 1]`.
    """

    data: np.ndarray  # uint8
    starts: np.ndarray  # int64[lines + 1]
    rows: np.ndarray  # int64[lines]
    first: np.ndarray  # int64[documents + 1]

    @classmethod
    def of(cls, column: pa.Array) -> Self:
        data, offsets = utf8_arrays(column)
        begins = np.empty(offsets[-1] - offsets[0] + 1, np.bool_)
        np.equal(data[offsets[0] : offsets[-1]], _NEWLINE, out=begins[1:])
        begins[offsets - offsets[0]] = True
        return cls._between(data, offsets, np.flatnonzero(begins) + offsets[0])

    @classmethod
    def _between(cls, data: np.ndarray, offsets: np.ndarray, starts: np.ndarray) -> Self:
        first = np.searchsorted(starts, offsets)
        return cls(data, starts, np.repeat(np.arange(len(first) - 1), np.diff(first)), first)

    def split(self, places: np.ndarray) -> Self:
        """The same lines, cut at these bytes of `data`, too."""
        return self._between(self.data, self.starts[self.first], np.union1d(self.starts, places))

    @property
    def text(self) -> pa.LargeStringArray:
        """The lines, without a copy."""
        buffers = pa.py_buffer(self.starts), pa.py_buffer(self.data)
        return pa.LargeStringArray.from_buffers(len(self.rows), *buffers)

    def matching(self, regex: str, ignore_case: bool = False) -> np.ndarray:
        """bool[lines]: those in which the regular expression (RE2) is found."""
        found = pc.match_substring_regex(self.text, regex, ignore_case=ignore_case)
        return found.to_numpy(zero_copy_only=False)


def cut(
    documents: pa.RecordBatch, lines: Lines, rules: np.ndarray, names: list[str]
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The documents without the lines that have a rule, and these lines, as CUTS_SCHEMA. `start` and `end`
    there count characters of the text before the cut. `rules` has for each line its place in `names` plus 1,
    or 0.
    """
    gone = rules > 0
    text, sizes = lines.text, np.diff(lines.starts)
    left = np.bincount(lines.rows[~gone], sizes[~gone], len(documents)).astype(np.int64)
    place = documents.schema.get_field_index("text")
    edited = documents.set_column(place, "text", _joined(text.filter(pa.array(~gone)), left))
    begins = gone & ((rules != np.roll(rules, 1)) | (lines.rows != np.roll(lines.rows, 1)))
    begins[:1] = gone[:1]
    first = np.flatnonzero(begins)  # of each run of lines with the same rule
    runs = np.cumsum(begins)[gone] - 1
    characters = pc.utf8_length(text).to_numpy()
    before = np.concatenate([[0], np.cumsum(characters)])
    starts = before[first] - before[lines.first[lines.rows[first]]]
    lengths, bytes_cut = (
        np.bincount(runs, count[gone], len(first)).astype(np.int64) for count in (characters, sizes)
    )
    columns = [
        documents.column("id").cast(pa.string()).take(pa.array(lines.rows[first])),
        pa.array(starts),
        pa.array(starts + lengths),
        pa.array(names, pa.string()).take(pa.array(rules[first].astype(np.int64) - 1)),
        _joined(text.filter(pa.array(gone)), bytes_cut),
    ]
    return edited, pa.RecordBatch.from_arrays(columns, schema=CUTS_SCHEMA)


def _joined(pieces: pa.LargeStringArray, sizes: np.ndarray) -> pa.LargeStringArray:
    """Pieces of text put together to texts of so many bytes."""
    data, offsets = utf8_arrays(pieces)
    ends = offsets[0] + np.concatenate([[0], np.cumsum(sizes)])
    return pa.LargeStringArray.from_buffers(len(sizes), pa.py_buffer(ends), pa.py_buffer(data))


def restored(text: str, cuts: list[tuple[int, str]]) -> str:
    """The text before it was cut. `cuts`: the start and the text of each, in ascending order."""
    pieces, taken, end = [], 0, 0
    for start, piece in cuts:
        pieces += [text[taken : taken + start - end], piece]
        taken += start - end
        end = start + len(piece)
    return "".join([*pieces, text[taken:]])
