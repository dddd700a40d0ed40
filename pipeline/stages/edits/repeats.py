"""Lines and paragraphs as hashes, by which those that several documents have are found."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.stages.compiled import kernel
from pipeline.stages.edits.lines import Lines
from pipeline.stages.edits.params import Repeated
from pipeline.stages.hashing import mix64
from pipeline.stages.text import utf8_arrays

# FNV-1a (Fowler, Noll, Vo), whose high bits are poor without a finalizer
_BASIS, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_HOST = r"^[A-Za-z][A-Za-z0-9+.-]*://(?:[^/@]*@)?(?P<host>[^/:?#]+)"

# A unit, and how many documents have it. Sorted by hash, which depends on the number of the rule, too.
COUNTED = np.dtype([("hash", "<u8"), ("documents", "<u4"), ("rule", "u1")])
# What is cut in a part; of those that are `first` here, all but the first. Sorted by hash.
REPEATED = np.dtype([("hash", "<u8"), ("first", "?")])


class Units(NamedTuple):
    """The lines or paragraphs that are compared: their hashes, and the `lines[start:stop]` of each."""

    hashes: np.ndarray  # uint64
    starts: np.ndarray
    stops: np.ndarray


def units(documents: pa.RecordBatch, lines: Lines, rule: Repeated, number: int) -> Units:
    """The units of all documents for a rule and its number, in order. If the rule is `within` a site, a
    document whose `url` has no host has no units.
    """
    starts = np.arange(len(lines.rows))
    stops = starts + 1
    blank = lines.matching(r"^\s*$")
    if rule.unit == "paragraph":
        inside = np.concatenate([[False], ~blank, [False]])
        ends = np.isin(np.arange(len(inside)), lines.first + 1)
        starts = np.flatnonzero(inside[1:-1] & (~inside[:-2] | ends[1:-1]))
        stops = np.flatnonzero(inside[1:-1] & (~inside[2:] | ends[2:])) + 1
    else:
        starts, stops = starts[~blank], stops[~blank]
    seeds = np.full(len(documents), _BASIS + np.uint64(number))
    if rule.within == "site":
        hosts = pc.struct_field(pc.extract_regex(documents.column("url"), _HOST), "host")
        names, places = utf8_arrays(pc.utf8_lower(hosts))
        seeds = _hashes(names, places[:-1], places[1:], seeds)[0]
        known = hosts.is_valid().to_numpy(zero_copy_only=False)[lines.rows[starts]]
        starts, stops = starts[known], stops[known]
    begins, ends = lines.starts[starts], lines.starts[stops]
    hashes, sizes = _hashes(lines.data, begins, ends, seeds[lines.rows[starts]])
    long = sizes >= rule.min_chars
    return Units(hashes[long], starts[long], stops[long])


def counted(documents: pa.RecordBatch, lines: Lines, rule: Repeated, number: int) -> np.ndarray:
    """COUNTED for the units of some documents."""
    found = units(documents, lines, rule, number)
    rows = lines.rows[found.starts]
    order = np.lexsort((rows, found.hashes))
    hashes, rows = found.hashes[order], rows[order]
    again = (hashes[1:] == hashes[:-1]) & (rows[1:] == rows[:-1])
    hashes, numbers = np.unique(np.delete(hashes, np.flatnonzero(again)), return_counts=True)
    return columns(COUNTED, hashes, numbers, np.full(len(hashes), number))


def columns(kind: np.dtype, *values: np.ndarray) -> np.ndarray:
    """The columns as one array."""
    made = np.empty(len(values[0]), kind)
    for name, column in zip(kind.names or (), values, strict=True):
        made[name] = column
    return made


def cut_units(units: Units, repeated: np.ndarray, seen: np.ndarray, lines: int) -> np.ndarray:
    """bool[lines]: those of units in `repeated` (REPEATED). Marks in `seen`, of the same length, which of its
    first ones have occurred.
    """
    if not len(repeated):
        return np.zeros(lines, np.bool_)
    place = np.searchsorted(repeated["hash"], units.hashes) % len(repeated)
    hit = np.flatnonzero(repeated["hash"][place] == units.hashes)
    spared = hit[repeated["first"][place[hit]] & ~seen[place[hit]]]
    _, first = np.unique(place[spared], return_index=True)
    seen[place[spared]] = True
    hit = np.setdiff1d(hit, spared[first])
    edges = np.zeros(lines + 1, np.int64)
    np.add.at(edges, units.starts[hit], 1)
    np.add.at(edges, units.stops[hit], -1)
    return np.cumsum(edges)[:-1] > 0


@kernel
def _hashes(
    data: np.ndarray, starts: np.ndarray, stops: np.ndarray, seeds: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The hash of each data[start:stop] without ASCII white space at its ends, from a seed on; its bytes."""
    found, sizes = np.empty(starts.size, np.uint64), np.empty(starts.size, np.int64)
    for unit in range(starts.size):
        start, stop = starts[unit], stops[unit]
        while start < stop and (data[start] == 32 or 9 <= data[start] <= 13):
            start += 1
        while stop > start and (data[stop - 1] == 32 or 9 <= data[stop - 1] <= 13):
            stop -= 1
        value = seeds[unit]
        for place in range(start, stop):
            value = (value ^ np.uint64(data[place])) * _PRIME
        found[unit], sizes[unit] = mix64(value), stop - start
    return found, sizes
