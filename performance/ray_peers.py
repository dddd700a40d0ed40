"""Tasks of this program and of datatrove on one Ray cluster: their time, and what a stopped worker does.

`python performance/ray_peers.py` starts a head and two nodes with one CPU each on this machine. It needs the
sample corpora in ../shared/corpora and datatrove (`make .venv/.peers`). Both read the same JSON lines and
write zstd Parquet, a task for each file. Then one worker gets SIGSTOP in mid-task.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from harness.alone import alone, environment, here
from harness.sidebyside import ROOT, record, texts

from tests.ray_cluster import RayCluster, engine_on, started

FILES, MEGABYTES = 8, 16
REPEATS = 2
GIVEN_UP = 100.0  # seconds after which a run with a stopped worker is ended
TIME_LIMIT = 30  # seconds of a task of datatrove, which has none of its own
SAID = 300  # last characters of what a run with a stopped worker says


def ours(source: Path, target: Path, address: str) -> None:
    from pipeline.sources.files import FilesConfig
    from pipeline.steps.corpus.ingest import Raw
    from pipeline.store.store import Store

    engine = engine_on(address)
    files = FilesConfig(paths=(str(source / "*.jsonl"),))
    Raw("sample", files, 1 << 20).make(Store(target), engine)
    engine.close()


def datatrove(source: Path, target: Path, address: str, limit: int | None = None) -> None:
    import ray
    from datatrove.executor.ray import RayPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.writers import ParquetWriter

    ray.init(address, log_to_driver=False)
    stages = [JsonlReader(str(source)), ParquetWriter(str(target / "out"), compression="zstd")]
    options: dict[str, Any] = {"mem_per_cpu_gb": 0.1, "time": limit}
    RayPipelineExecutor(stages, FILES, logging_dir=str(target / "logs"), **options).run()
    ray.shutdown()


RUNS: dict[str, Callable[[Path, Path, str], None]] = {
    "groundwork": ours,
    "datatrove": datatrove,
    f"datatrove, time={TIME_LIMIT}": partial(datatrove, limit=TIME_LIMIT),
}


def written(name: str, source: Path, address: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as target:
        RUNS[name](source, Path(target), address)
        sizes = [path.stat().st_size for path in Path(target).rglob("*") if path.is_file()]
    return {"written_mb": sum(sizes) / 1e6, "files": len(sizes)}


def hung(name: str, source: Path, address: str) -> dict[str, Any]:
    """What becomes of a run of which one worker is stopped in its second task or later."""
    with tempfile.TemporaryDirectory() as target:
        command = [sys.executable, __file__, "--into", target, name, str(source), address]
        begun = time.monotonic()
        run = subprocess.Popen(command, cwd=ROOT, env=environment(), stderr=subprocess.PIPE, text=True)
        while not (finished := done(Path(target))) or not (pid := at_work()):
            time.sleep(0.01)
        os.kill(pid, signal.SIGSTOP)
        try:
            _, said = run.communicate(timeout=GIVEN_UP)
            ended: int | str = run.returncode
        except subprocess.TimeoutExpired:
            run.kill()
            ended, said = f"not after {GIVEN_UP:.0f} s", run.communicate()[1]
        seconds = round(time.monotonic() - begun)
        time.sleep(5)
        left = Path(f"/proc/{pid}").exists()
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return {
            "exit status": ended,
            "seconds": seconds,
            "tasks done": f"{done(Path(target))} of {FILES}, {finished} before",
            "the stopped process is left": left,
            "says": said[-SAID:],
        }


def done(target: Path) -> int:
    """Tasks that count as finished."""
    closed = [*target.glob("logs/completions/*"), *target.rglob("rejects/*.parquet")]
    return len({path.name for path in closed})


def at_work() -> int:
    """A process that works on a task: of datatrove a child of its actor, of which a task takes seconds."""
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            title = (process / "cmdline").read_bytes()
            facts = (process / "stat").read_text().rpartition(")")[2].split()
            age = uptime - int(facts[19]) / os.sysconf("SC_CLK_TCK")
            forked = title.startswith(b"ray::") and title == Path(f"/proc/{facts[1]}/cmdline").read_bytes()
            if title.startswith(b"ray::corpora/sample") or (forked and age > 1):
                return int(process.name)
    return 0


def measured(source: Path, cluster: RayCluster) -> dict[str, Any]:
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in list(RUNS)[:2]}
    for _ in range(REPEATS):
        for name, found in runs.items():
            found.append(alone(__file__, name, str(source), cluster.address))
    medians = {
        name: {
            "seconds": round(statistics.median(one["seconds"] for one in found), 1),
            **{
                fact: round(statistics.median(one["said"][fact] for one in found), 1)
                for fact in found[0]["said"]
            },
        }
        for name, found in runs.items()
    }
    return {"undisturbed": medians, "stopped": {name: hung(name, source, cluster.address) for name in RUNS}}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", nargs="?")
    parser.add_argument("source", nargs="?", type=Path)
    parser.add_argument("address", nargs="?")
    parser.add_argument("--into", type=Path)
    options = parser.parse_args()
    if options.into:
        RUNS[options.name](options.source, options.into, options.address)
    elif options.name:
        here(lambda: written(options.name, options.source, options.address))
    else:
        with tempfile.TemporaryDirectory() as source, started() as cluster:
            found = texts(("enwiki", "techdocs", "books"), MEGABYTES)
            for number in range(FILES):
                rows = (
                    json.dumps({"id": f"{number}-{row}", "text": text})
                    for row, text in enumerate(found[number::FILES])
                )
                Path(source, f"{number:02d}.jsonl").write_text("".join(f"{row}\n" for row in rows))
            report = {"files": FILES, "mb": MEGABYTES, **measured(Path(source), cluster)}
        record("ray_peers", report, ("ray", "datatrove", "pyarrow"))


if __name__ == "__main__":
    main()
