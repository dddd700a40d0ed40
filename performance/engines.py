"""Data stages as Ray tasks beside local processes: processor time of everything that works, and the memory of
the process of the run.

`python performance/engines.py ADDRESS` needs the sample corpora in ../shared/corpora, and a Ray cluster whose
nodes are all on this machine, with two CPUs and no other work: `ray start --head --num-cpus=2`.
"""

import argparse
import json
import os
import resource
import statistics
import tempfile
from pathlib import Path
from typing import Any

from harness.alone import alone, here
from harness.sidebyside import peak_megabytes, record, texts

from pipeline.sources.files import FilesConfig
from pipeline.stages.dedup import DedupParams
from pipeline.stages.pii import PiiParams
from pipeline.stages.quality import PROFILES
from pipeline.store.engines.local import EngineParams, LocalEngine
from pipeline.store.engines.ray import RayEngine
from pipeline.store.store import Store
from tests.pipeline.steps.make import collect, deduplicate, judge, scrub

NAMES = ("enwiki", "techdocs", "books")
CORPUS = "sample"
PART_BYTES = 16_000_000
FILES = (4, 16)
REPEATS = 3
WORKERS = 2
OF_THE_CLUSTER = (b"ray::", b"/raylet/raylet", b"gcs_server")


def stages(files: Path, address: str) -> dict[str, Any]:
    """Dedups the files: processor seconds, memory, data version. Without an address, in local processes."""
    params = EngineParams(kind="ray", address=address, workers=WORKERS) if address else None
    engine = RayEngine(params) if params else LocalEngine(WORKERS)
    before = of_this_process() + (of_the_cluster() if address else 0)
    with tempfile.TemporaryDirectory() as directory:
        store = Store(Path(directory))
        collect(store, engine, CORPUS, FilesConfig(paths=(str(files / "*.jsonl"),)), PART_BYTES)
        scrub(store, engine, CORPUS, PiiParams())
        judge(store, engine, CORPUS, PROFILES["default"])
        made = deduplicate(store, engine, [CORPUS], DedupParams()).data_version
    used = of_the_cluster() if address else 0
    engine.close()
    return {"seconds": of_this_process() + used - before, "run_mb": peak_megabytes(), "made": made}


def of_this_process() -> float:
    """Processor seconds, those of children that have ended included."""
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)


def of_the_cluster() -> float:
    """Processor seconds of Ray's processes on this machine."""
    ticks = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(name in (process / "cmdline").read_bytes() for name in OF_THE_CLUSTER):
                ticks += sum(map(int, (process / "stat").read_text().rpartition(")")[2].split()[11:15]))
        except OSError:  # it has ended
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


def write(directory: Path, files: int) -> None:
    """Files of different text: each takes every n-th word of a document, from another one on."""
    found = texts(NAMES, files * PART_BYTES / 1e6)
    for number in range(files):
        rows = [" ".join(text.split(" ")[number % 5 :: 1 + number // 5]) for text in found[number::files]]
        (directory / f"{number:02d}.jsonl").write_text(
            "".join(json.dumps({"text": row}) + "\n" for row in rows)
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("files", nargs="?", type=Path)
    options = parser.parse_args()
    if options.files:
        here(lambda: stages(options.files, options.address.removeprefix("none")))
        return
    report: dict[str, Any] = {"workers": WORKERS, "part_mb": PART_BYTES / 1e6}
    for files in FILES:
        with tempfile.TemporaryDirectory() as directory:
            write(Path(directory), files)
            megabytes = sum(path.stat().st_size for path in Path(directory).iterdir()) / 1e6
            runs: dict[str, list[dict[str, Any]]] = {"none": [], options.address: []}
            for _ in range(REPEATS):
                for address, said in runs.items():
                    said.append(alone(__file__, address, directory)["said"])
        local, on_ray = runs.values()
        assert len({one["made"] for one in local + on_ray}) == 1
        report[f"{files} files"] = {
            "mb": round(megabytes),
            **{
                name: {
                    "seconds": round(statistics.median(one["seconds"] for one in said), 1),
                    "run_mb": round(max(one["run_mb"] for one in said)),
                }
                for name, said in (("local", local), ("ray", on_ray))
            },
        }
    record("engines", report, ("ray", "pyarrow", "numba"))


if __name__ == "__main__":
    main()
