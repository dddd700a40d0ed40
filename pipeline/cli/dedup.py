"""dedup: finds exact and near duplicates among the documents of plain files."""

import argparse
from functools import partial

from pipeline.cli.plain_files import add_kept_and_out, kept_and_removed, make_tables, settings_are_options
from pipeline.stages.dedup import DedupParams
from pipeline.steps import plain_files


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_kept_and_out(parser)
    parser.add_argument(
        "--threshold",
        metavar="S",
        type=float,
        default=0.8,
        help="remove a document at this Jaccard similarity of word 5-grams or above; default: %(default)s",
    )


def run(options: argparse.Namespace) -> None:
    with settings_are_options():
        params = DedupParams(threshold=options.threshold)
    make = partial(plain_files.deduplicate, params=params, kept=options.documents)
    make_tables(options, make, kept_and_removed("removed"), "documents", "decisions")
