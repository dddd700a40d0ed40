"""What stops the chain of `data_half.py` at sixteen cores: measured on one core, reckoned for more of them.

`python performance/many_cores.py` times each task of each stage in one process, and what that process does
between tasks. Then it deals the tasks out to N processes as the engine does: each takes the next one when it
has ended its last. What one process does alone is added in full. A process loads libraries and kernels of its
own, which the first task of a stage shows against the others, and starts `START_SECONDS` late. Two processes
are measured, too, which shows how far the reckoning can be trusted. It knows nothing of memory bandwidth,
disks and caches.
"""

import argparse
import heapq
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from data_half import TRAINING, prepared_texts, stages, write
from harness.alone import alone, here
from harness.sidebyside import record

from pipeline.store.engines.local import LocalEngine, Result, Task

CORES = (1, 2, 4, 8, 16, 32, 64)
START_SECONDS = 0.45  # until a worker process has its first task, docs/performance/data.md
MEGABYTES, FILES, PART_BYTES = 700.0, 64, 4_000_000


@dataclass
class Recording(LocalEngine):
    """One process, which notes the seconds of each task of each map."""

    maps: list[list[float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(1)

    def map(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], *, input_bytes: int, what: str
    ) -> Iterator[Result]:
        seconds: list[float] = []
        self.maps.append(seconds)

        def timed(task: Task) -> Result:
            started = time.perf_counter()
            result = function(task)
            seconds.append(time.perf_counter() - started)
            return result

        yield from super().map(timed, tasks, input_bytes=input_bytes, what=what)


def makespan(seconds: Sequence[float], processes: int) -> float:
    """Until the last task ends, when each of the processes takes the next task at the end of its last."""
    usual = statistics.median(seconds)
    loading = max(0.0, seconds[0] - usual) if len(seconds) > 2 else 0.0
    ends = [loading] * processes
    for spent in (min(seconds[0], usual), *seconds[1:]):
        heapq.heappush(ends, heapq.heappop(ends) + spent)
    return max(ends)


def measured(prepared: Path) -> dict[str, dict[str, Any]]:
    """Stage -> its seconds, those of each task of each map, and those between tasks."""
    engine, found = Recording(), {}
    for stage, seconds in stages(prepared, engine, PART_BYTES):
        maps, engine.maps = engine.maps, []
        found[stage] = {"seconds": seconds, "maps": maps, "alone": seconds - sum(map(sum, maps))}
    return found


def two_processes(prepared: Path) -> dict[str, float]:
    with closing(LocalEngine(2)) as engine:
        return dict(stages(prepared, engine, PART_BYTES))


def reckoned(stage: dict[str, Any], processes: int, begins: bool) -> float:
    """Seconds of a stage. `begins`: its tasks are the first, so that the other processes start with it."""
    late = START_SECONDS if begins and processes > 1 else 0.0
    return stage["alone"] + sum(makespan(seconds, processes) for seconds in stage["maps"]) + late


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--megabytes", type=float, default=MEGABYTES)
    options.add_argument("--one", nargs=2, metavar=("HOW", "PREPARED"), help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.one:
        how, prepared = chosen.one
        pa.set_cpu_count(1)
        here(lambda: {"one": measured, "two": two_processes}[how](Path(prepared)))
        return
    with tempfile.TemporaryDirectory() as name:
        prepared = Path(name) / "all"
        megabytes = write(prepared, prepared_texts(chosen.megabytes), FILES)
        one, two = (alone(__file__, "--one", how, str(prepared))["said"] for how in ("one", "two"))
    table = {
        stage: {
            "one process": round(facts["seconds"], 2),
            "alone": round(facts["alone"], 3),
            "tasks": max(len(seconds) for seconds in facts["maps"]),
            "two processes, measured": round(two[stage], 2),
        }
        | {f"{cores}": round(reckoned(facts, cores, stage == "raw"), 2) for cores in CORES}
        for stage, facts in one.items()
    }
    work = [stage for stage in one if stage != TRAINING]
    totals = {column: sum(table[stage][column] for stage in work) for column in map(str, CORES)}
    report = {
        "mb": round(megabytes),
        "files": FILES,
        "part_mb": PART_BYTES / 1e6,
        "stages": table,
        "times as fast, without training": {
            column: round(totals["1"] / seconds, 2) for column, seconds in totals.items()
        }
        | {"2, measured": round(totals["1"] / sum(two[stage] for stage in work), 2)},
    }
    record("many_cores", report, ("numba", "pyarrow", "gigatoken"))


if __name__ == "__main__":
    main()
