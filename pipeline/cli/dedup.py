"""dedup: finds exact and near duplicates among the documents of plain files."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from tqdm import tqdm

from pipeline.cli.plain_files import (
    UsageError,
    add_in_and_out,
    add_kept,
    input_files,
    output,
    progress_bar,
    report_removed,
    worker_processes,
)
from pipeline.store.engine import LocalEngine

HELP = "Find exact and near duplicates in files and verify each: writes OUT/decisions.parquet."

Task = TypeVar("Task")
Result = TypeVar("Result")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_in_and_out(parser, "the directory for the results, or - for JSON lines on standard output")
    add_kept(parser)
    parser.add_argument(
        "--threshold",
        metavar="S",
        type=float,
        default=0.8,
        help="remove a document at this Jaccard similarity of word 5-grams or above; default: %(default)s",
    )


def run(options: argparse.Namespace) -> None:
    from pipeline.stages.dedup import DedupParams
    from pipeline.steps.files import tables

    if not 0 < options.threshold <= 1:
        raise UsageError(f"--threshold {options.threshold}: must be above 0 and at most 1")
    params = DedupParams(threshold=options.threshold)
    with input_files(options) as files, output(options, "documents", "decisions") as out:
        with worker_processes() as engine, progress_bar("reading") as progress:
            outcome = tables.deduplicate(files, out, params, _WithBars(engine), progress, options.documents)
        report_removed(outcome, "removed", options.out)


class _WithBars:
    """An engine that shows a progress bar for each map in a terminal."""

    def __init__(self, engine: LocalEngine):
        self._engine = engine

    def map(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], *, input_bytes: int, what: str
    ) -> Iterator[Result]:
        results = self._engine.map(function, tasks, input_bytes=input_bytes, what=what)
        return iter(tqdm(results, desc=what.rpartition("/")[2], total=len(tasks), unit="part", disable=None))
