"""What dedup of a changed corpus costs beside dedup from scratch: 70 MB, then 1 MB more of them, then one
document changed.

`python performance/dedup_incremental.py` needs the sample corpora in ../shared/corpora.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from harness.dedup_corpus import PART_DOCUMENTS, stored, with_duplicates
from harness.sidebyside import Report, record, size_of

from pipeline.stages.dedup import DedupParams
from pipeline.store import keys
from pipeline.store.engines.local import LocalEngine
from pipeline.store.store import Store
from tests.pipeline.steps.make import deduplicate

MEGABYTES, ADDED, REPEATS = 70, 1, 3


def seconds(store: Store, engine: LocalEngine, corpora: dict[str, Sequence[str]]) -> float:
    for name, texts in corpora.items():
        stored(store, name, texts)
    started = time.perf_counter()
    deduplicate(store, engine, list(corpora), DedupParams())
    return time.perf_counter() - started


def history(engine: LocalEngine, texts: Sequence[str], more: Sequence[str]) -> Report:
    """Seconds of each step, and how many clusters were verified anew."""
    changed = [texts[0] + " One more sentence at the end of it.", *texts[1:]]
    steps: list[tuple[str, dict[str, Sequence[str]]]] = [
        ("from scratch", {"old": texts}),
        ("1 MB added", {"old": texts, "new": more}),
        ("one document changed", {"old": changed, "new": more}),
        ("nothing changed", {"old": changed, "new": more}),
    ]
    found: Report = {}
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        for name, corpora in steps:
            before = store.current(keys.DEDUP_EVIDENCE).path if found else None
            took = seconds(store, engine, corpora)
            after = store.current(keys.DEDUP_EVIDENCE)
            anew = 0 if after.path == before else after.counts["clusters_verified_anew"]
            found[name] = {
                "seconds": took,
                "clusters": after.counts["clusters"],
                "clusters verified anew": anew,
            }
    return found


def main() -> None:
    texts = with_duplicates(("enwiki", "techdocs", "books"), MEGABYTES + ADDED)
    cut = round(len(texts) * ADDED / (MEGABYTES + ADDED))
    more, texts = texts[:cut], texts[cut:]
    report: Report = {
        "mb": round(size_of(texts), 1),
        "mb_added": round(size_of(more), 1),
        "documents": len(texts),
        "part_documents": PART_DOCUMENTS,
    }
    for workers in (1, len(os.sched_getaffinity(0))):
        engine = LocalEngine(workers, processes_pay_above=1_000_000)
        try:
            history(engine, texts[: PART_DOCUMENTS * 2], more)  # compiles and starts what is not measured
            runs = [history(engine, texts, more) for _ in range(REPEATS)]
        finally:
            engine.close()
        first = statistics.median(run["from scratch"]["seconds"] for run in runs)
        report[f"{workers} processes"] = {
            name: found
            | {
                "seconds": round(took := statistics.median(run[name]["seconds"] for run in runs), 3),
                "ratio": round(first / took, 1),
            }
            for name, found in runs[0].items()
        }
    record("dedup_incremental", report, ("numba", "pyarrow"))


if __name__ == "__main__":
    main()
