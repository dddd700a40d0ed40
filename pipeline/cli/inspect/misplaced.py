"""Arguments of a subcommand that was not named first: the command to write instead."""

import argparse
import shlex
from collections.abc import Sequence
from functools import partial

from pipeline.cli.opening import UsageError


def add_arguments(counts: argparse.ArgumentParser) -> None:
    add = partial(counts.add_argument, help=argparse.SUPPRESS)
    add("words", nargs="*")
    add("--what-if", action="append")
    for option in ("--against", "--limit", "--seed"):
        add(option)


def check(options: argparse.Namespace, subcommands: Sequence[str]) -> None:
    """Raises UsageError, with the command to write, unless all arguments are those of `counts`."""
    if options.words:
        meant = [*([] if options.words[0] in subcommands else ["documents"]), *options.words]
    elif options.what_if:
        meant = ["what-if", *options.what_if]
    elif options.against is not None:
        meant = ["against", options.against]
    elif options.limit is not None or options.seed is not None:
        meant = ["documents", "RULE"]
    else:
        return
    for name in ("variant", "corpus", "limit", "seed"):
        if (value := getattr(options, name)) is not None:
            meant += [f"--{name}", value]
    *others, last = subcommands
    command = shlex.join(["python", "-m", "pipeline", "inspect", *meant])
    raise UsageError(f"inspect: name {', '.join(others)} or {last} first: write `{command}`")
