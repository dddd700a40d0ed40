"""report: writes a page on the recipe and its model, for somebody who has neither of them."""

import argparse
from pathlib import Path

from pipeline.cli.opening import UsageError, add_variant, opened
from pipeline.reports.regulators import GAP
from pipeline.reports.report import report
from trainer.system import terminal
from trainer.system.durable import write_atomically


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_variant(parser)
    parser.add_argument(
        "-o", "--out", metavar="FILE", type=Path, default=Path("report.html"), help="default: %(default)s"
    )


def run(options: argparse.Namespace) -> None:
    if options.out.suffix != ".html":
        raise UsageError(f"-o {options.out}: the report is a page, name a .html file")
    recipe, store = opened(options.variant)
    with terminal.doing("reading what was made, and drawing it"):
        page = report(store, recipe)
    write_atomically(options.out, page)
    print(f"{options.out}: {len(page.encode()) / 1e6:.1f} MB, {page.count(GAP)} fields {GAP}")
