"""`python -m pipeline ...`: what one wants to know or do without the UI."""

import argparse
import sys
from collections.abc import Sequence

from pipeline.errors import PipelineError


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; a mistake that the user can set right is one line on standard error and exit status 2."""
    parser = argparse.ArgumentParser(prog="python -m pipeline", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("summary", help="where the model is, how good it is, two samples, how to open the UI")
    options = parser.parse_args(arguments)
    try:
        return {"summary": _summary}[options.command]()
    except PipelineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _summary() -> int:
    from pipeline.assets.resources import default_store
    from pipeline.reports.summary import summary

    print(summary(default_store()))
    return 0
