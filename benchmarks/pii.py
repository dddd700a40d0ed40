"""PII scrubbing with all kinds on, beside four plain patterns of Python's `re` and datatrove's PIIFormatter (two kinds).

`python benchmarks/pii.py` needs the sample corpora in ../shared/corpora; datatrove is measured where importable. One-core figures are medians of
processor time, the contenders taking turns on the same documents. One and two processes are compared by the clock, which counts what else the
machine does, and by the processor time of the slowest process.
"""

import datetime
import importlib.util
import io
import json
import multiprocessing
import os
import platform
import re
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pyarrow as pa
import zstandard

from pipeline.stages.pii import PiiParams, scrub

ROOT = Path(__file__).parents[1]
CORPORA = ROOT.parent / "shared" / "corpora"
RESULTS = ROOT / "benchmarks" / "results" / "pii.json"
FILES = ("techdocs", "enwiki", "books", "labelled/neardup_articles_2500", "labelled/pii_presidio_synth_v2")
MEGABYTES, REPEATS, BATCH_ROWS = 100, 5, 500

PATTERNS = (
    (re.compile(r"\b[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}\b"), "[EMAIL]"),
    (re.compile(r"\b(?:\+?1[-. ]?)?\(?[2-9]\d{2}\)?[-. ]\d{3}[-. ]\d{4}\b"), "[PHONE]"),
    (re.compile(r"\b\d{3}-\d{2}-\d{4}\b"), "[SSN]"),
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b"), "[IP]"),
)


def corpus() -> list[str]:
    """The documents of all files, again from the first until there are 100 MB."""
    texts = []
    for name in FILES:
        with (CORPORA / f"{name}.jsonl.zst").open("rb") as file:
            texts += [json.loads(line)["text"] for line in io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8")]
    size, once = sum(len(text.encode()) for text in texts), len(texts)
    while size < MEGABYTES * 1e6:
        texts.append(texts[len(texts) % once])
        size += len(texts[-1].encode())
    return texts


def batches(texts: list[str]) -> list[pa.RecordBatch]:
    parts = [texts[i : i + BATCH_ROWS] for i in range(0, len(texts), BATCH_ROWS)]
    return [pa.record_batch({"id": [str(i) for i in range(len(part))], "text": pa.array(part, pa.large_string())}) for part in parts]


def ours(parts: list[pa.RecordBatch]) -> None:
    for part in parts:
        scrub(part, PiiParams())


def plain_patterns(texts: list[str]) -> None:
    for text in texts:
        for pattern, placeholder in PATTERNS:
            text = pattern.sub(placeholder, text)


def datatrove(texts: list[str]) -> None:
    from datatrove.pipeline.formatters import PIIFormatter

    formatter = PIIFormatter()
    for text in texts:
        formatter.format(text)


def in_turn(contenders: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Median seconds of processor time of each."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(REPEATS):
        for name, contender in contenders.items():
            start = time.process_time()
            contender()
            seconds[name].append(time.process_time() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def _worker(share: int, shares: int, barrier: Barrier, seconds: "multiprocessing.Queue[float]") -> None:
    """One of the processes: reads its share, then scrubs it whenever all are ready; reports its median processor time."""
    parts = batches(corpus()[share::shares])
    ours(parts)
    times = []
    for _ in range(REPEATS):
        barrier.wait()
        start = time.process_time()
        ours(parts)
        times.append(time.process_time() - start)
        barrier.wait()
    seconds.put(statistics.median(times))


def processes(count: int) -> tuple[float, float]:
    """Median seconds for the whole corpus with `count` processes at once: by the clock, and processor time of the slowest process."""
    context = multiprocessing.get_context("spawn")
    barrier, seconds = context.Barrier(count + 1), context.Queue()
    workers = [context.Process(target=_worker, args=(i, count, barrier, seconds)) for i in range(count)]
    for worker in workers:
        worker.start()
    clock = []
    for _ in range(REPEATS):
        barrier.wait()
        start = time.perf_counter()
        barrier.wait()
        clock.append(time.perf_counter() - start)
    slowest = max(seconds.get() for _ in workers)
    for worker in workers:
        worker.join()
    return statistics.median(clock), slowest


def main() -> None:
    texts = corpus()
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    parts = batches(texts)
    found = sum(scrub(part, PiiParams())[1].num_rows for part in parts)
    contenders: dict[str, Callable[[], None]] = {"groundwork, 7 kinds": lambda: ours(parts), "re, 4 plain patterns": lambda: plain_patterns(texts)}
    versions = {name: version(name) for name in ("numba", "pyarrow")}
    if importlib.util.find_spec("datatrove"):
        contenders["datatrove PIIFormatter, 2 kinds"] = lambda: datatrove(texts)
        versions["datatrove"] = version("datatrove")
    speed = {name: megabytes / seconds for name, seconds in in_turn(contenders).items()}
    ours_speed = next(iter(speed.values()))
    (clock_one, one), (clock_two, two) = processes(1), processes(2)
    result = {
        "date": datetime.date.today().isoformat(),
        "machine": f"{_processor()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "load_average": round(os.getloadavg()[0], 1),
        "versions": versions,
        "corpus": {"documents": len(texts), "mb": round(megabytes, 1), "spans": found},
        "mb_per_s_one_core": {name: round(value, 1) for name, value in speed.items()},
        "times_as_fast": {name: round(ours_speed / value, 1) for name, value in speed.items()},
        "mb_per_s_by_processes_clock": {1: round(megabytes / clock_one, 1), 2: round(megabytes / clock_two, 1)},
        "mb_per_s_by_processes_processor_time": {1: round(megabytes / one, 1), 2: round(megabytes / two, 1)},
    }
    print(json.dumps(result, indent=2))
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


def _processor() -> str:
    models = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text()) if Path("/proc/cpuinfo").exists() else []
    return models[0] if models else platform.processor()


if __name__ == "__main__":
    main()
