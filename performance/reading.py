"""Reading JSON lines (zstd) and Parquet to stored raw parts, beside datatrove's readers with its Parquet
writer, and `datasets`.

    python performance/reading.py [--megabytes 73] [--memory]

One process each, which may use several threads: processor time says what a core does. `--memory`: the peak
memory of reading 25 MB and 2.5 GB of JSON lines, each in a process of its own.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from harness.sidebyside import Contender, documents, importable, measure, peak_megabytes, record

from pipeline.sources.files import FilesConfig
from pipeline.store.engines.local import LocalEngine
from pipeline.store.store import Store
from tests.pipeline.steps.make import collect

NAMES = ("enwiki", "techdocs", "books")
FILES = 8
PART_BYTES = 128_000_000
MEMORY_MEGABYTES = (25, 2500)
LIBRARIES = ("pyarrow", "orjson", "datatrove", "datasets")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=float, default=73)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        ours(arguments.read, arguments.read.with_name("store"))()
        print(peak_megabytes())
        return
    with tempfile.TemporaryDirectory() as directory:
        if arguments.memory:
            record(
                "reading_memory",
                {f"peak_mb_at_{size}_mb": peak(Path(directory), size) for size in MEMORY_MEGABYTES},
                LIBRARIES,
            )
        else:
            record("reading", speeds(Path(directory), arguments.megabytes), LIBRARIES)


def speeds(directory: Path, megabytes: float) -> dict[str, object]:
    size = write_inputs(directory, megabytes)
    report: dict[str, object] = {}
    for kind in ("jsonl.zst", "parquet"):
        found = directory / kind
        calls = {"groundwork": ours(found, directory / "store")}
        if importable("datatrove"):
            calls["datatrove"] = datatrove(found, directory / "trove")
        if importable("datasets"):
            calls["datasets"] = datasets(found, directory / "sets")
        contenders = {name: Contender(size, call) for name, call in calls.items()}
        report[kind] = {
            "by_the_clock": measure(contenders),
            "by_processor_time": measure(contenders, time.process_time),
        }
    return report


def rows(megabytes: float) -> Iterator[dict[str, object]]:
    """Documents of all corpora in turn, over again under other ids until they make `megabytes`."""
    size, turn = 0.0, 0
    while True:
        for name in NAMES:
            for number, document in enumerate(documents(name)):
                if size >= megabytes * 1e6:
                    return
                size += len(document["text"].encode())
                yield {"id": f"{name}-{turn}-{number}", "text": document["text"]}
        turn += 1


def write_inputs(directory: Path, megabytes: float) -> float:
    """FILES files of either kind with the same documents; the megabytes of their text."""
    found = list(rows(megabytes))
    for kind in ("jsonl.zst", "parquet"):
        (directory / kind).mkdir()
    for number in range(FILES):
        some = found[number::FILES]
        lines = "".join(json.dumps(row) + "\n" for row in some).encode()
        (directory / "jsonl.zst" / f"{number}.jsonl.zst").write_bytes(zstandard.compress(lines))
        table = pa.table({"id": [row["id"] for row in some], "text": [row["text"] for row in some]})
        pq.write_table(
            table, directory / "parquet" / f"{number}.parquet", compression="zstd", row_group_size=200
        )
    return sum(len(str(row["text"]).encode()) for row in found) / 1e6


def ours(found: Path, store: Path) -> Callable[[], object]:
    def call() -> None:
        shutil.rmtree(store, ignore_errors=True)
        collect(Store(store), LocalEngine(workers=1), "c", FilesConfig(paths=(str(found / "*"),)), PART_BYTES)

    return call


def datatrove(found: Path, out: Path) -> Callable[[], object]:
    from datatrove.pipeline.readers import JsonlReader, ParquetReader
    from datatrove.pipeline.writers import ParquetWriter

    def call() -> None:
        shutil.rmtree(out, ignore_errors=True)
        reader = (
            JsonlReader(str(found), compression="zstd")
            if found.name == "jsonl.zst"
            else ParquetReader(str(found))
        )
        writer = ParquetWriter(str(out), compression="zstd")
        for _ in writer.run(reader.run()):
            pass
        writer.close()

    return call


def datasets(found: Path, out: Path) -> Callable[[], object]:
    from datasets import load_dataset

    def call() -> None:
        shutil.rmtree(out, ignore_errors=True)
        kind = "json" if found.name == "jsonl.zst" else "parquet"
        loaded = load_dataset(
            kind, data_files=sorted(map(str, found.iterdir())), split="train", cache_dir=str(out / "cache")
        )
        loaded.to_parquet(str(out / "all.parquet"))

    return call


def peak(directory: Path, megabytes: float) -> float:
    """Peak resident megabytes of a process that reads so much, in files of about 25 MB of text."""
    found = directory / "in"
    found.mkdir()
    texts = [json.dumps({"text": row["text"]}) for row in rows(25)]
    for number in range(max(1, round(megabytes / 25))):
        (found / f"{number}.jsonl.zst").write_bytes(
            zstandard.compress("".join(line + "\n" for line in texts).encode(), 1)
        )
    measured = subprocess.run(
        [sys.executable, __file__, "--read", str(found)], capture_output=True, text=True, check=True
    )
    for path in (found, directory / "store"):
        shutil.rmtree(path)
    return round(float(measured.stdout))


if __name__ == "__main__":
    main()
