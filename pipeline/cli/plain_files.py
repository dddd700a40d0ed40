"""What the commands for plain files share: arguments, progress bar, worker processes, report."""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from pipeline.store.engine import LocalEngine
from pipeline.store.errors import PipelineError

if TYPE_CHECKING:
    from pipeline.steps.files.documents import Outcome

# Bytes of text. Each worker loads the kernels again, and reading, half of the work, is not parallel.
PROCESSES_PAY_ABOVE = 200_000_000


class UsageError(PipelineError):
    """An option has an unknown or impossible value."""


def add_in_and_out(parser: argparse.ArgumentParser, out: str) -> None:
    parser.add_argument(
        "paths",
        metavar="IN",
        nargs="+",
        help="files to read: jsonl, json, csv, txt or md, plain or compressed, or parquet; paths or globs",
    )
    parser.add_argument("-o", "--out", metavar="OUT", type=Path, required=True, help=out)


@contextmanager
def worker_processes() -> Iterator[LocalEngine]:
    engine = LocalEngine(processes_pay_above=PROCESSES_PAY_ABOVE)
    try:
        yield engine
    finally:
        engine.close()


@contextmanager
def progress_bar(name: str) -> Iterator[Callable[[int, int], object]]:
    """A progress bar in bytes of the input files; call the function with the bytes read and the total."""
    with tqdm(desc=name, unit="B", unit_scale=True, disable=None) as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield show


def report(rows: Sequence[tuple[str, int]], outcome: "Outcome") -> None:
    """Prints the numbers, what was set aside and why, the throughput and the paths of the written files."""
    for name, number in [*rows, *breakdown("set aside", outcome.counts, "set_aside")]:
        print(f"{name:<32}{number:>14,}")
    megabytes = outcome.counts["text_bytes"] / 1e6
    print(f"\n{megabytes:,.1f} MB of text in {outcome.seconds:.1f} s, {megabytes / outcome.seconds:.1f} MB/s")
    print(f"written: {', '.join(map(str, outcome.files))}")


def report_removed(outcome: "Outcome", removed: str) -> None:
    """Reports kept and removed documents. `removed` is the name of the count of removed ones."""
    counts = outcome.counts
    kept = [("documents", counts["documents"]), ("kept", counts["kept"])]
    report([*kept, *breakdown("removed", counts, removed)], outcome)


def breakdown(title: str, counts: Mapping[str, int], prefix: str) -> list[tuple[str, int]]:
    """A total, and indented below it its parts, most frequent first."""
    parts = [
        (name.partition("/")[2], number) for name, number in counts.items() if name.startswith(f"{prefix}/")
    ]
    return [
        (title, counts[prefix]),
        *((f"  {name}", number) for name, number in sorted(parts, key=lambda row: (-row[1], row[0]))),
    ]
