"""Work with corpora, token shards and checkpoints from the command line, without the UI."""

import argparse
import os
import sys
from collections.abc import Sequence

from pipeline.cli import (
    benchmark,
    compare,
    corpora,
    dedup,
    disk,
    export,
    gc,
    init,
    inspect,
    inspect_shards,
    lineage,
    mixture,
    push,
    quality,
    recipe,
    reproduce,
    scrub,
    summary,
    tokenize,
    train_tokenizer,
    variants,
    verify,
)
from pipeline.store.errors import PipelineError

# Each module has HELP, `add_arguments(parser)` and `run(options)`. `run` imports what is slow to import, such
# as the compiled kernels.
COMMANDS = {
    "init": init,
    "corpora": corpora,
    "export": export,
    "push": push,
    "lineage": lineage,
    "reproduce": reproduce,
    "summary": summary,
    "benchmark": benchmark,
    "variants": variants,
    "compare": compare,
    "mixture": mixture,
    "scrub": scrub,
    "quality": quality,
    "dedup": dedup,
    "inspect": inspect,
    "inspect-shards": inspect_shards,
    "gc": gc,
    "disk": disk,
    "verify": verify,
    "train-tokenizer": train_tokenizer,
    "tokenize": tokenize,
    "recipe": recipe,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. Prints a mistake that the user can correct as one line on standard error, with exit
    status 2.
    """
    parser = argparse.ArgumentParser(prog="python -m pipeline", description=__doc__)
    commands = parser.add_subparsers(dest="command", title="commands", metavar="COMMAND", required=True)
    for name, module in COMMANDS.items():
        module.add_arguments(commands.add_parser(name, help=module.HELP, description=module.HELP))
    options = parser.parse_args(arguments)
    try:
        COMMANDS[options.command].run(options)
    except PipelineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    # The reader of the pipe, perhaps `head`, has closed it: discard what is still buffered.
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        named = f"{error.filename}: " if error.filename else ""
        print(f"error: {named}{error.strerror or error}", file=sys.stderr)
        return 2
    return 0
