"""inspect: what quality rejects now, with other settings or in a variant; documents, with the evidence."""

import argparse
from collections.abc import Sequence

from pipeline.cli.inspect import against, counts, documents, misplaced, what_if
from pipeline.cli.inspect.options import subject
from pipeline.cli.opening import add_variant
from trainer.system import terminal

VIEWS = {"counts": counts, "documents": documents, "what-if": what_if, "against": against}
ABOUT = {
    "counts": "Count the documents that are kept, and those that each rule rejects. This is the default.",
    "documents": "Show documents at random that a rule rejected, removed or changed, or that are kept.",
    "what-if": "Count what each rule would reject with other settings, and show documents that change.",
    "against": "Count what each rule rejects in a variant; show documents that only one of the two keeps.",
}


def completed(arguments: Sequence[str]) -> list[str]:
    """What follows `inspect`, with `counts` where no subcommand comes first."""
    is_complete = arguments and arguments[0] in (*VIEWS, "-h", "--help")
    return [*arguments] if is_complete else ["counts", *arguments]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    views = parser.add_subparsers(dest="view", title="subcommands", metavar="SUBCOMMAND", required=True)
    for name, about in ABOUT.items():
        view = views.add_parser(name, help=about, description=about)
        VIEWS[name].add_arguments(view)
        add_variant(view)
        view.add_argument("--corpus", metavar="C", help="look at this corpus only")
    misplaced.add_arguments(views.choices["counts"])


def run(options: argparse.Namespace) -> None:
    if options.view == "counts":
        misplaced.check(options, [*VIEWS])
    lines = VIEWS[options.view].lines(subject(options), options)
    for line in terminal.awaited("reading verdicts and documents", lines):
        print(line)
