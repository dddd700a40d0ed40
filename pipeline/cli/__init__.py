"""`python -m pipeline ...`: what one wants to know or do without the UI."""

import argparse
import os
import sys
from collections.abc import Sequence

from pipeline.cli import corpora, export, gc, inspect, inspect_shards, lineage, plain, recipe, summary, tokens
from pipeline.store.errors import PipelineError


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; a mistake that the user can set right is one line on standard error and exit
    status 2.
    """
    parser = argparse.ArgumentParser(prog="python -m pipeline", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for family in (corpora, export, lineage, summary, plain, inspect, inspect_shards, gc, tokens, recipe):
        family.add_commands(commands)
    options = parser.parse_args(arguments)
    try:
        options.run(options)
    except PipelineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    # the reader, `head` perhaps, has seen enough; what is still buffered has nowhere to go
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
