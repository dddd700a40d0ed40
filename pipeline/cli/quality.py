"""quality: measures and judges the documents of plain files."""

import argparse
from functools import partial

from pipeline.cli.opening import check_known
from pipeline.cli.plain_files import add_kept_and_out, kept_and_removed, make_tables, settings_are_options
from pipeline.stages.quality import PROFILES, QualityParams
from pipeline.steps import plain_files


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_kept_and_out(parser)
    parser.add_argument(
        "--profile", metavar="P", default="default", help="the set of thresholds to use; default: %(default)s"
    )
    parser.add_argument(
        "--languages", metavar="A,B", help="keep documents in these languages only, such as en,de"
    )


def run(options: argparse.Namespace) -> None:
    check_known("--profile", [options.profile], PROFILES)
    languages = None if options.languages is None else options.languages.split(",")
    with settings_are_options():
        profile = PROFILES[options.profile].model_dump()
        params = QualityParams.model_validate(profile | {"languages": languages})
    make = partial(plain_files.judge, params=params, kept=options.documents)
    make_tables(options, make, kept_and_removed("rejected"), "documents", "verdicts")
