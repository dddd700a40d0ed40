"""Work with corpora, token shards and checkpoints from the command line, without the UI."""

import argparse
import os
import sys
from collections.abc import Sequence

from pipeline.cli import (
    corpora,
    dedup,
    export,
    gc,
    inspect,
    inspect_shards,
    lineage,
    quality,
    recipe,
    reproduce,
    scrub,
    summary,
    tokenize,
    train_tokenizer,
)
from pipeline.store.errors import PipelineError

# Each module has HELP, `add_arguments(parser)` and `run(options)`. What takes long to import, such as the
# compiled kernels, is imported by `run`.
COMMANDS = {
    "corpora": corpora,
    "export": export,
    "lineage": lineage,
    "reproduce": reproduce,
    "summary": summary,
    "scrub": scrub,
    "quality": quality,
    "dedup": dedup,
    "inspect": inspect,
    "inspect-shards": inspect_shards,
    "gc": gc,
    "train-tokenizer": train_tokenizer,
    "tokenize": tokenize,
    "recipe": recipe,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. A mistake that the user can correct is one line on standard error and exit
    status 2.
    """
    parser = argparse.ArgumentParser(prog="python -m pipeline", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, module in COMMANDS.items():
        module.add_arguments(commands.add_parser(name, help=module.HELP, description=module.HELP))
    options = parser.parse_args(arguments)
    try:
        COMMANDS[options.command].run(options)
    except PipelineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    # The reader, `head` perhaps, has closed the pipe: send what is still buffered nowhere.
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
