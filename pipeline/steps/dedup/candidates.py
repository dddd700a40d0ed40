"""Finds documents that may be duplicates. Reads the sorted runs of all parts once, and no text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import numpy as np
import pyarrow as pa

from pipeline.stages import dedup
from pipeline.stages.hashing import GOLDEN_RATIO
from pipeline.steps.dedup import shuffle
from pipeline.steps.dedup.components import Documents, components
from pipeline.steps.dedup.shuffle import Slice, Written, divide, remove, write_divided
from pipeline.steps.dedup.signatures import SCALARS, Runs, SignedPart
from pipeline.store.engines.local import Engine
from pipeline.store.files import Scratch, StoredFile
from pipeline.store.parquet import read_table

# The file with the runs of a part, and the global row of its first document.
PartRun = tuple[StoredFile, int]
Keys = tuple[np.ndarray, np.ndarray]  # uint64, and the global rows of their documents

RANGE_KEYS = 8_000_000  # keys that a task sorts at a time, in about 0.4 GB
RUNS_TOGETHER = 4  # runs of one task when they are small, so that it opens each file once

COMPONENTS_TOGETHER = 2_000_000  # documents whose components a task sorts, in up to 400 bytes for each
KEYED = pa.schema([pa.field("key", pa.uint64()), *dedup.MEMBER_SCHEMA])


def link(
    engine: Engine, signed: Sequence[SignedPart], scratch: Scratch, params: dedup.DedupParams
) -> tuple[list[Slice], int]:
    """Links the documents that share text or a band key with another, directly or through others. Returns the
    linked documents as KEYED, those of a component in one slice, and their bytes.

    Where documents and parts are few, a task reads some of the runs of each part. Otherwise tasks first
    divide the keys of all runs by ranges. Memory: a worker holds one range.
    """
    filled = [piece for piece in signed if piece.rows]
    runs = [(piece.runs, piece.start) for piece in filled]
    documents = Documents.of(sum(piece.rows for piece in filled))
    links = candidates(engine, scratch, documents, runs, params.bands + 1)
    labels = components(engine, scratch, documents, links)
    members = [_Members(piece, documents.labels(labels, piece.start, piece.rows)) for piece in filled]
    input_bytes = sum(piece.part.files["signatures"].bytes for piece in filled)
    bits = (documents.total // COMPONENTS_TOGETHER).bit_length()
    write_members = partial(_Members.write, documents=documents, scratch=scratch, bits=bits)
    written = list(engine.map(write_members, members, input_bytes=input_bytes, what="dedup candidates"))
    remove([Slice(tuple(labels), 0)])
    return divide(engine, scratch, written, bits, what="dedup candidates")


def candidates(
    engine: Engine, scratch: Scratch, documents: Documents, runs: Sequence[PartRun], count: int
) -> Iterator[Written]:
    """The links between documents with equal keys in any of the `count` runs."""
    size = shuffle.ROW_BYTES * count * documents.total
    write_links = partial(_write_links, documents=documents, scratch=scratch)
    if documents.total <= RANGE_KEYS and len(runs) <= shuffle.FILES:
        together = min(RUNS_TOGETHER, max(1, RANGE_KEYS // max(documents.total, 1)))
        numbers = [tuple(range(count)[first : first + together]) for first in range(0, count, together)]
        tasks = [RunKeys(some, tuple(runs)) for some in numbers if runs]
        yield from engine.map(write_links, tasks, input_bytes=size, what="dedup candidates")
        return
    bits = (count * documents.total // RANGE_KEYS).bit_length()
    window = max(1, shuffle.TOGETHER // (shuffle.ROW_BYTES * count))  # documents
    groups = groupby(enumerate(runs), lambda one: (one[0] // shuffle.FILES, one[1][1] // window))
    parts = [RunKeys(tuple(range(count)), tuple(run for _, run in some)) for _, some in groups]
    write_keys = partial(_write_keys, scratch=scratch, bits=bits)
    written = list(engine.map(write_keys, parts, input_bytes=size, what="dedup keys"))
    ranges, _ = divide(engine, scratch, written, bits, what="dedup keys")
    yield from engine.map(write_links, ranges, input_bytes=size, what="dedup candidates")
    remove(ranges)


@dataclass(frozen=True)
class RunKeys:
    """Some runs of some parts."""

    numbers: tuple[int, ...]
    parts: tuple[PartRun, ...]

    @property
    def name(self) -> str:
        return f"runs-{self.numbers[0]}-{self.parts[0][1]}"

    def keys(self) -> list[Keys]:
        """The band keys of each run, with their global rows."""
        opened = [(Runs(file), start) for file, start in self.parts]
        return [
            (
                np.concatenate([runs[number][0] for runs, _ in opened]),
                np.concatenate([runs[number][1] + np.int64(start) for runs, start in opened]),
            )
            for number in self.numbers
        ]


def _write_keys(runs: RunKeys, scratch: Scratch, bits: int) -> Written:
    keys, rows = map(np.concatenate, zip(*runs.keys(), strict=True))
    return write_divided(scratch, runs.name, pa.record_batch({"key": keys, "row": rows}), bits)


def _write_links(some: RunKeys | Slice, documents: Documents, scratch: Scratch) -> Written:
    """Links documents with equal band keys. In a range, keys of several runs are mixed. Two keys of different
    runs are as unlikely to be equal by chance as two keys of one run.
    """
    keys = some.keys() if isinstance(some, RunKeys) else [map(np.asarray, some.read().columns)]
    pairs = (dedup.candidate_pairs(*dedup.sort_band(*each)) for each in keys)
    left, right = map(np.concatenate, zip(*pairs, strict=True))
    return documents.write_links(scratch, f"links-{some.name}", left, right)


@dataclass(frozen=True)
class _Members:
    """The linked documents of a part, with the smallest row of their components."""

    piece: SignedPart
    labels: tuple[Slice, ...]

    def write(self, documents: Documents, scratch: Scratch, bits: int) -> Written:
        rows, roots = documents.read(*self.labels)
        here = self.piece.among(rows)
        rows, roots = rows[here], roots[here]
        # A part that is compared with nothing has no scalars.
        found = read_table(self.piece.signatures, columns=SCALARS) if len(rows) else KEYED.empty_table()
        scalars = found.take(pa.array(rows - self.piece.start))
        columns = {name: scalars.column(name).combine_chunks() for name in SCALARS} | {
            "key": roots.astype(np.uint64) * GOLDEN_RATIO,
            "row": rows,
            "root": roots,
            "priority": pa.repeat(pa.scalar(self.piece.priority, pa.int32()), len(rows)),
        }
        members = pa.record_batch([columns[name] for name in KEYED.names], schema=KEYED)
        return write_divided(scratch, f"members-{self.piece.start}", members, bits)
