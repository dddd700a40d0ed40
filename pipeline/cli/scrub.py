"""scrub: replaces personal data and secrets in plain files."""

import argparse

from pipeline.cli.plain_files import (
    UsageError,
    add_in_and_out,
    breakdown,
    input_files,
    output,
    progress_bar,
    report,
    worker_processes,
)

HELP = "Replace personal data and secrets in files: writes OUT/documents.parquet and OUT/spans.parquet."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_in_and_out(
        parser, "the directory for the results, or - for the documents as JSON lines on standard output"
    )
    parser.add_argument("--kinds", metavar="A,B", help="replace these kinds only; default: all kinds")
    parser.add_argument(
        "--replacement",
        choices=("placeholder", "format"),
        default="placeholder",
        help="replace by [EMAIL] and the like, or by a fixed value of the same format; default: %(default)s",
    )


def run(options: argparse.Namespace) -> None:
    from pipeline.stages.pii import PiiKind, PiiParams
    from pipeline.steps import plain_files

    names = list(PiiKind) if options.kinds is None else options.kinds.split(",")
    unknown = [name for name in names if name not in list(PiiKind)]
    if unknown:
        raise UsageError(f"--kinds: unknown kind {unknown[0]!r}; choose from {', '.join(PiiKind)}")
    params = PiiParams(kinds=tuple(PiiKind(name) for name in names), replacement=options.replacement)
    with input_files(options) as files, output(options, "documents") as out:
        with worker_processes() as engine, progress_bar() as progress:
            outcome = plain_files.scrub(files, out, params, engine, progress)
        counts = outcome.counts
        rows = [("documents", counts["documents"]), ("with PII", counts["documents_with_pii"])]
        beside = {"in URLs": counts["spans_in_url"], "in metadata": counts["spans_in_metadata"]}
        found = [(name, count) for name, count in beside.items() if count]
        report([*rows, *breakdown("PII", counts, "spans"), *found], outcome, options.out)
