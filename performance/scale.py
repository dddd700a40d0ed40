"""Dedup's central code at size: a corpus that is drawn, not written, goes through the code that reads keys by
ranges, links documents, sorts them into clusters and decides; the best of each cluster stays, as if verified.

`python performance/scale.py [DOCUMENTS ...]`, 1e6 3e6 1e7 when not given. `--runs`: keys of each document (33
at 32 bands). `--giant`: documents that hang together. `--shrink 100`: parts and tasks are as much smaller, so
that there are as many of them as for a hundred times the documents. Each size runs in a process of its own,
its tasks one by one in another. A law a * documents ** b is fitted to what was counted. Parts are those of
128 MB of text: 32,000 documents. Needs some 1,200 bytes of disk for each document.
"""

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from harness.sidebyside import peak_megabytes, record

from pipeline.stages import dedup
from pipeline.steps.dedup import candidates, clusters, components, shuffle
from pipeline.steps.dedup.clusters import Layout
from pipeline.steps.dedup.signatures import RUN_SCHEMA, SignedPart
from pipeline.store.files import Files, Scratch, StoredFile
from pipeline.store.manifest import File, Part

PART_DOCUMENTS = 32_000
# the share of documents that are like an earlier one, and that of the bands in which they show it
DUPLICATES, PARTNERS = 0.3, 0.6
TEXT_BYTES = 4_000  # of a document
COUNTED: Counter[str] = Counter()
SHRUNK = 1


class Reading:
    """Counts what is read of a file: each call would be a request to a bucket."""

    def __init__(self, file: BinaryIO):
        self._file, self.closed = file, False
        self.seek, self.tell, self.close = file.seek, file.tell, file.close
        self.readable = self.seekable = lambda: True

    def read(self, size: int = -1) -> bytes:
        found = self._file.read(size)
        COUNTED.update(requests=1, bytes_read=len(found))
        return found

    def __enter__(self) -> "Reading":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class CountingFiles(Files):
    """Counts what goes through the door to the store."""

    def fetch(self, path: Path) -> Path:
        COUNTED.update(opened=1, requests=1, bytes_read=path.stat().st_size)
        return path

    def open(self, path: Path) -> Any:
        COUNTED.update(opened=1)
        return Reading(path.open("rb"))

    def share(self, path: Path) -> None:
        COUNTED.update(written=1, requests=1, bytes_written=path.stat().st_size)


@dataclass
class Apart:
    """An engine with one worker process, so that this process's memory is that of a driver."""

    apart: bool = True
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    tasks: int = 0
    worker_mb: float = 0.0
    pool: ProcessPoolExecutor = field(init=False)

    def __post_init__(self) -> None:
        self.pool = ProcessPoolExecutor(1, get_context("spawn"), shrink, (SHRUNK,))

    def map(
        self, function: Callable[..., Any], tasks: Sequence[Any], *, input_bytes: int, what: str
    ) -> Iterator[Any]:
        started = time.perf_counter()
        waiting = [self.pool.submit(_counted, function, task) for task in tasks[:2]]
        for number in range(len(tasks)):
            result, counted, peak = waiting.pop(0).result()
            if number + 2 < len(tasks):
                waiting.append(self.pool.submit(_counted, function, tasks[number + 2]))
            COUNTED.update(counted)
            self.worker_mb = max(self.worker_mb, peak)
            self.tasks += 1
            yield result
        # what is done with the results counts, too
        self.seconds[what.rstrip("-0123456789")] += time.perf_counter() - started

    def close(self) -> None:
        self.pool.shutdown()


def shrink(factor: int) -> None:
    """Makes parts and what a task takes on so much smaller, as if the corpus was so much larger."""
    global SHRUNK, PART_DOCUMENTS
    SHRUNK, PART_DOCUMENTS = factor, PART_DOCUMENTS // factor
    for module, names in {
        candidates: ("RANGE_KEYS", "COMPONENTS_TOGETHER"),
        clusters: ("RANGE_CHARACTERS",),
        components: ("DOCUMENTS_TOGETHER",),
        shuffle: ("TOGETHER",),
    }.items():
        for name in names:
            setattr(module, name, getattr(module, name) // factor)
    components.RANGE_BITS -= round(math.log2(factor))


def _counted(function: Callable[..., Any], task: Any) -> tuple[Any, Counter[str], float]:
    COUNTED.clear()
    return function(task), Counter(COUNTED), peak_megabytes()


def keys_of(part: int, rows: np.ndarray, band: int, giant: int) -> np.ndarray:
    """Keys of one band: of the original of each copy, or its own. Documents below `giant` share one."""
    choices = np.random.default_rng([part])  # the same original in all bands
    copies = choices.random(len(rows)) < DUPLICATES
    original = np.where(copies, (choices.random(len(rows)) * (rows + 1)).astype(np.int64), rows)
    shown = np.where(np.random.default_rng([part, band]).random(len(rows)) < PARTNERS, original, rows)
    if band == 1:
        shown = np.where(rows < giant, 0, shown)
    mixed = (shown.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= np.uint64(band * 0x5851F42D4C957F2D % (1 << 64))
    mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> np.uint64(29))


def drawn(folder: Path, part: int, start: int, count: int, runs: int, giant: int) -> SignedPart:
    """A part as `sign` leaves it."""
    rows = np.arange(start, start + count)
    paths = folder / f"{part:06}.arrow", folder / f"{part:06}.parquet"
    with pa.ipc.new_file(str(paths[0]), RUN_SCHEMA) as writer:
        for band in range(runs):
            # no two texts are equal: run 0 holds hashes of whole texts
            keys, local = dedup.sort_band(
                keys_of(part, rows, band, giant) if band else own(rows), rows - start
            )
            writer.write_batch(pa.record_batch([keys, local.astype(np.uint32)], schema=RUN_SCHEMA))
    hashes = np.stack([own(rows), own(rows + (1 << 40))], axis=1)
    ids = pa.array([f"{value:032x}" for value in (hashes[:, 0]).tolist()])
    exact = pa.Array.from_buffers(pa.binary(16), count, [None, pa.py_buffer(np.ascontiguousarray(hashes))])
    lengths = np.random.default_rng([part, 1 << 20]).integers(200, 2 * TEXT_BYTES, count)
    pq.write_table(pa.table({"id": ids, "exact": exact, "length": lengths}), paths[1])
    files = [File(path.name, path.stat().st_size, "") for path in paths]
    made = Part(f"{part:06}", "", {"runs": files[0], "signatures": files[1]}, {"documents": count})
    runs_file, signatures = (StoredFile(path, CountingFiles(folder)) for path in paths)
    return SignedPart("drawn", 0, made, signatures, runs_file, (), 0, start, count)


def own(rows: np.ndarray) -> np.ndarray:
    mixed = (rows.astype(np.uint64) + np.uint64(1)) * np.uint64(0xD6E8FEB86659FD93)
    return (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)


def run(documents: int, runs: int, giant: int, folder: Path) -> dict[str, Any]:
    """One size, in this process."""
    starts = range(0, documents, PART_DOCUMENTS)
    engine = Apart()
    draw = partial(_draw, folder=folder, documents=documents, runs=runs, giant=giant)
    signed = list(engine.pool.map(draw, enumerate(starts), chunksize=8))
    engine.close()
    engine = Apart()
    params = dedup.DedupParams(bands=runs - 1)
    before, started = peak_megabytes(), time.perf_counter()
    scratch = Scratch(folder / "scratch", CountingFiles(folder), apart=True)
    linked, size = candidates.link(engine, signed, scratch, params)
    linking_seconds = time.perf_counter() - started
    linking_mb, linking_worker_mb = peak_megabytes(), engine.worker_mb
    layout = Layout(np.array([piece.start for piece in signed]), ("drawn",), scratch)
    found = clusters.find_clusters(engine, layout, linked, size)
    (ranges, _, decided), largest = found, 0
    for _ in engine.map(clusters.ClusterRange.keys, ranges, input_bytes=0, what="dedup evidence"):
        pass
    stays = partial(_first_stays, layout=layout)
    groups = shuffle.grouped(ranges, found.together)
    for written, characters in engine.map(stays, groups, input_bytes=0, what="dedup decisions"):
        decided.append(written)
        largest = max(largest, characters)
    by_part, _ = shuffle.divide(engine, scratch, decided, layout.bits, what="dedup decisions")
    counted = np.array(
        list(engine.map(_removed, by_part[: len(signed)], input_bytes=0, what="dedup decisions"))
    )
    return {
        "documents": documents,
        "runs": runs,
        "giant": giant,
        "shrunk": SHRUNK,
        "parts": len(signed),
        "linked_documents": int(counted[:, 0].sum()),
        "largest_piece_characters": largest,
        "removed": int(counted[:, 1].sum()),
        "tasks": engine.tasks,
        **{name: COUNTED[name] for name in ("opened", "written", "requests", "bytes_read", "bytes_written")},
        "seconds_linking": round(linking_seconds, 1),
        "seconds_deciding": round(time.perf_counter() - started - linking_seconds, 1),
        "seconds_by_stage": {name: round(value, 1) for name, value in engine.seconds.items()},
        "driver_mb_before": round(before),
        "driver_mb_linking": round(linking_mb),
        "driver_mb": round(peak_megabytes()),
        "worker_mb_linking": round(linking_worker_mb),
        "worker_mb": round(engine.worker_mb),
    }


def _first_stays(some: Sequence[clusters.ClusterRange], layout: Layout) -> tuple[shuffle.Written, int]:
    """Decides on some ranges. Returns the characters of the largest cluster, too."""
    decided, largest = [], 0
    for one in some:
        found = one.read().clusters
        first = np.repeat(found.starts[:-1], np.diff(found.starts))
        similarity = np.where(first == np.arange(len(first)), np.nan, 0.9).astype(np.float32)
        decided.append(layout.decided(found, dedup.Verified(first, similarity)))
        lengths = np.append(0, np.cumsum(found.members.column("length").to_numpy()[found.best]))
        largest = max(largest, int(np.diff(lengths[found.starts]).max(initial=0)))
    return layout.write(f"decided-{some[0].name}", pa.concat_batches(decided)), largest


def _removed(decided: shuffle.Slice) -> tuple[int, int]:
    """The decisions on a part, and how many remove a document."""
    keep = decided.read().column("keep").to_numpy(zero_copy_only=False)
    return len(keep), int(np.count_nonzero(~keep))


def _draw(numbered: tuple[int, int], folder: Path, documents: int, runs: int, giant: int) -> SignedPart:
    part, start = numbered
    return drawn(folder, part, start, min(PART_DOCUMENTS, documents - start), runs, giant)


def fitted(results: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """a and b of a * documents ** b, by least squares of the logarithms, and the value for 10 and 100 TB."""
    sizes = np.log([result["documents"] for result in results])
    laws = {}
    factor = results[0]["shrunk"]
    for name in ("tasks", "opened", "written", "requests", "bytes_read", "bytes_written", "seconds_linking"):
        exponent, scale = np.polyfit(sizes, np.log([max(result[name], 1e-3) for result in results]), 1)
        at = {
            f"{size}_tb": math.exp(scale) * (size * 1e12 / TEXT_BYTES / factor) ** exponent
            for size in (10, 100)
        }
        laws[name] = {
            "exponent": round(exponent, 3),
            **{key: float(f"{value:.3g}") for key, value in at.items()},
        }
    return laws


def main() -> None:
    parser = argparse.ArgumentParser()
    number = partial(lambda text: int(float(text)))
    parser.add_argument("documents", nargs="*", type=number, default=[1_000_000, 3_000_000, 10_000_000])
    parser.add_argument("--runs", type=int, default=33)
    parser.add_argument("--giant", type=number, default=0)
    parser.add_argument("--folder", type=Path, help="for the files; a temporary one when not given")
    parser.add_argument("--shrink", type=int, default=1, help="how much smaller parts and tasks are")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        shrink(given.shrink)
        print(json.dumps(run(given.documents[0], given.runs, given.giant, given.folder)))
        return
    results = []
    for documents in given.documents:
        folder = Path(tempfile.mkdtemp(dir=given.folder))
        options = [
            "--one",
            f"--runs={given.runs}",
            f"--giant={given.giant}",
            f"--shrink={given.shrink}",
            f"--folder={folder}",
        ]
        try:
            out = subprocess.run(
                [sys.executable, __file__, str(documents), *options],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        finally:
            shutil.rmtree(folder)
        results.append(json.loads(out))
        print(json.dumps(results[-1]), flush=True)
    report: dict[str, Any] = {"sizes": results}
    if len(results) > 1:
        report["laws"] = fitted(results)
    name = "scale_giant" if given.giant else "scale" if given.shrink == 1 else "scale_shrunk"
    record(name, report, ("numba", "numpy", "pyarrow"))


if __name__ == "__main__":
    main()
