"""scrub: replaces personal data and secrets in plain files."""

import argparse
from collections.abc import Mapping
from functools import partial

from pipeline.cli.opening import check_known
from pipeline.cli.plain_files import add_in_and_out, make_tables, total_and_parts
from pipeline.stages.pii import PiiKind, PiiParams
from pipeline.steps import plain_files


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
    names = list(PiiKind) if options.kinds is None else options.kinds.split(",")
    check_known("--kinds", names, PiiKind)
    params = PiiParams(kinds=tuple(map(PiiKind, names)), replacement=options.replacement)
    make_tables(options, partial(plain_files.scrub, params=params), _rows, "documents")


def _rows(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    beside = {"in URLs": counts["spans_in_url"], "in metadata": counts["spans_in_metadata"]}
    return [
        ("documents", counts["documents"]),
        ("with PII", counts["documents_with_pii"]),
        *total_and_parts("PII", counts, "spans"),
        *((name, count) for name, count in beside.items() if count),
    ]
