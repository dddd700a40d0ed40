"""quality: measures and judges the documents of plain files."""

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

HELP = "Measure and judge the quality of each document in files: writes OUT/verdicts.parquet."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_in_and_out(parser, "the directory for the results, or - for JSON lines on standard output")
    add_kept(parser)
    parser.add_argument(
        "--profile", metavar="P", default="default", help="the set of thresholds to use; default: %(default)s"
    )
    parser.add_argument(
        "--languages", metavar="A,B", help="keep documents in these languages only, such as en,de"
    )


def run(options: argparse.Namespace) -> None:
    from pipeline.stages.language import LANGUAGES
    from pipeline.stages.quality import PROFILES
    from pipeline.steps import plain_files

    if options.profile not in PROFILES:
        raise UsageError(f"--profile: unknown profile {options.profile!r}; choose from {', '.join(PROFILES)}")
    languages = None if options.languages is None else tuple(options.languages.split(","))
    unknown = sorted(set(languages or ()) - LANGUAGES)
    if unknown:
        raise UsageError(
            f"--languages: {unknown[0]!r} is not a language that can be detected; choose from "
            f"{' '.join(sorted(LANGUAGES))}"
        )
    params = PROFILES[options.profile].model_copy(update={"languages": languages})
    with input_files(options) as files, output(options, "documents", "verdicts") as out:
        with worker_processes() as engine, progress_bar() as progress:
            outcome = plain_files.judge(files, out, params, engine, progress, options.documents)
        report_removed(outcome, "rejected", options.out)
