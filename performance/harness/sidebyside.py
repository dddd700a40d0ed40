"""Shared by all benchmarks: sample text, contenders in turns, results with the machine and the date."""

import datetime
import importlib.util
import io
import json
import os
import platform
import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import zstandard

ROOT = Path(__file__).parents[2]
CORPORA = ROOT.parent / "shared" / "corpora"
RESULTS = ROOT / "performance" / "results"
REPEATS = 5

Report = dict[str, Any]


@dataclass(frozen=True)
class Contender:
    """What is timed, and the megabytes (1e6 bytes of UTF-8 text) that one call works through."""

    megabytes: float
    call: Callable[[], object]


def documents(name: str) -> Iterator[dict[str, Any]]:
    """The rows of one sample corpus."""
    with (CORPORA / f"{name}.jsonl.zst").open("rb") as file:
        for line in io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8"):
            yield json.loads(line)


def texts(names: Sequence[str], megabytes: float) -> list[str]:
    """Texts of these corpora in turn, over again until they make `megabytes`."""
    found: list[str] = []
    size = 0
    while True:
        for name in names:
            for document in documents(name):
                if size >= megabytes * 1e6:
                    return found
                found.append(document["text"])
                size += len(found[-1].encode())


def sample(found: Sequence[str], megabytes: float) -> list[str]:
    """Evenly spaced texts that make about `megabytes`: for peers too slow for all of them."""
    sizes = [len(text.encode()) for text in found]
    step = max(1, round(sum(sizes) / (megabytes * 1e6)))
    return list(found[::step])


def size_of(found: Sequence[str]) -> float:
    """Megabytes of UTF-8."""
    return sum(len(text.encode()) for text in found) / 1e6


def peak_megabytes() -> float:
    """The most memory that this process has held. A process inherits ru_maxrss from its parent."""
    return (
        next(
            int(line.split()[1])
            for line in Path("/proc/self/status").read_text().splitlines()
            if line.startswith("VmHWM:")
        )
        / 1000
    )


def importable(*names: str) -> bool:
    return all(importlib.util.find_spec(name) for name in names)


def measure(contenders: dict[str, Contender], clock: Callable[[], float] = time.perf_counter) -> Report:
    """Medians of REPEATS calls after one to warm up; contenders take turns, so that noise meets all of them.

    `ratio` is the first one's speed over theirs.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for run in range(REPEATS + 1):
        for name, contender in contenders.items():
            started = clock()
            contender.call()
            if run:
                seconds[name].append(clock() - started)
    speeds = {
        name: contender.megabytes / statistics.median(seconds[name]) for name, contender in contenders.items()
    }
    first = next(iter(speeds.values()))
    return {
        name: {
            "mb": round(contenders[name].megabytes, 2),
            "mb_per_s": round(speed, 3),
            "ratio": round(first / speed, 2),
        }
        for name, speed in speeds.items()
    }


def record(name: str, report: Report, libraries: Sequence[str]) -> None:
    """Prints the report and keeps it as results/<name>.json with date, machine and versions."""
    report = {
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "versions": {
            library: version(library) for library in libraries if importable(library.replace("-", "_"))
        },
        **report,
    }
    written = json.dumps(report, indent=2)
    print(written)
    (RESULTS / f"{name}.json").write_text(written + "\n")


def machine() -> str:
    return f"{processor()}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}"


def processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    named = re.search(r"model name\s*: (.+)", cpuinfo.read_text()) if cpuinfo.exists() else None
    return named[1] if named else platform.processor() or platform.machine()
