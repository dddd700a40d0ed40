"""A hundred million documents' band keys on disk, through the code that dedup links documents with, in a few
gigabytes of memory.

`python performance/dedup_scale.py [DOCUMENTS]`, 1e8 when not given. Keys are made up, duplicates are as
frequent as in a web crawl. One band is on disk at a time (12 bytes for each key), is sorted range by range
and united with those before; what more bands take is said by extrapolation.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from harness.sidebyside import record

from pipeline.stages.dedup import DedupParams, labels, linked, sort_band, unite
from pipeline.steps.dedup.candidates import RANGE_KEYS, RunRange
from pipeline.steps.dedup.signatures import RUN_SCHEMA

PART_DOCUMENTS = 1_000_000
# the share of documents that are like an earlier one, and that of the bands in which they show it
DUPLICATES, PARTNERS = 0.3, 0.6
BANDS = 2


def keys_of(part: int, rows: np.ndarray, band: int) -> np.ndarray:
    """Keys of one band: those of the document that each is a copy of, or its own."""
    choices = np.random.default_rng([part])  # the same original in all bands
    original = np.where(
        choices.random(len(rows)) < DUPLICATES,
        (choices.random(len(rows)) * (rows + 1)).astype(np.int64),
        rows,
    )
    shown = np.where(np.random.default_rng([part, band]).random(len(rows)) < PARTNERS, original, rows)
    mixed = (shown.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(
        band * 0x5851F42D4C957F2D
    )
    mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> np.uint64(29))


def write_band(folder: Path, documents: int, band: int) -> tuple[tuple[Path, int], ...]:
    """The sorted runs of one band, a file for each part, as signatures are stored."""
    runs = []
    for part, start in enumerate(range(0, documents, PART_DOCUMENTS)):
        rows = np.arange(start, min(start + PART_DOCUMENTS, documents))
        keys, local = sort_band(keys_of(part, rows, band), rows - start)
        path = folder / f"{part:05}.arrow"
        with pa.ipc.new_file(str(path), RUN_SCHEMA) as writer:
            writer.write_batch(
                pa.RecordBatch.from_arrays(
                    [pa.array(keys), pa.array(local.astype(np.uint32))], schema=RUN_SCHEMA
                )
            )
        runs.append((path, start))
    return tuple(runs)


def peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("documents", nargs="?", type=lambda text: int(float(text)), default=100_000_000)
    documents = parser.parse_args().documents
    parents, ranges = np.arange(documents), -(-documents // RANGE_KEYS)
    seconds = {"sort and pair": 0.0, "unite": 0.0}
    pairs = disk = 0
    for band in range(BANDS):
        with tempfile.TemporaryDirectory() as folder:
            runs = write_band(Path(folder), documents, band)
            disk = sum(path.stat().st_size for path, _ in runs)
            for index in range(ranges):
                started = time.perf_counter()
                left, right = RunRange((0,), index, ranges).pairs(runs)
                paired = time.perf_counter()
                unite(parents, left, right)
                seconds["sort and pair"] += paired - started
                seconds["unite"] += time.perf_counter() - paired
                pairs += len(left)
    started = time.perf_counter()
    found = linked(labels(parents))
    once = time.perf_counter() - started
    each = {name: round(total / BANDS, 2) for name, total in seconds.items()}
    runs_of_all = DedupParams().bands + 1
    report = {
        "documents": documents,
        "bands_done": BANDS,
        "peak_gb": round(peak_gb(), 2),
        "disk_bytes_per_document_and_band": round(disk / documents, 2),
        "pairs_per_band": pairs // BANDS,
        "linked_documents": len(found),
        "seconds_per_band": each,
        "seconds_for_labels": round(once, 2),
        "extrapolated_to_all_bands": {
            "runs": runs_of_all,
            "seconds_one_process": round(runs_of_all * sum(each.values()) + once),
            "disk_gb": round(runs_of_all * disk / 1e9, 1),
        },
    }
    record("dedup_scale", report, ("numba", "numpy", "pyarrow"))


if __name__ == "__main__":
    main()
