"""dedup: finds exact and near duplicates among the documents of plain files."""

import argparse

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

HELP = "Find exact and near duplicates in files and verify each: writes OUT/decisions.parquet."


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
    from pipeline.steps import plain_files

    if not 0 < options.threshold <= 1:
        raise UsageError(f"--threshold {options.threshold}: must be above 0 and at most 1")
    params = DedupParams(threshold=options.threshold)
    with input_files(options) as files, output(options, "documents", "decisions") as out:
        with worker_processes() as engine, progress_bar() as progress:
            outcome = plain_files.deduplicate(files, out, params, engine, progress, options.documents)
        report_removed(outcome, "removed", options.out)
