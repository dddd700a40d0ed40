"""Work with corpora, token shards and checkpoints from the command line, without the UI."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from pipeline.cli.recipe_option import OWN_RECIPE, add_recipe, command_first, using_recipe
from pipeline.store.atomic import CLOSED, UNWRITABLE
from pipeline.store.errors import PipelineError
from trainer.system import ctrl_c, streams
from trainer.system.errors import OUT_OF_MEMORY, TrainerError, is_out_of_memory
from trainer.system.open_files import allow_enough
from trainer.system.signals import loading

COMMANDS = {
    "start": "Train a model on a folder of text by a deadline: chooses all settings, and says why.",
    "init": "Write a recipe for text of your own, with a comment for each setting.",
    "corpora": "List the ready-made corpora, or what each corpus of a recipe contributes to its training.",
    "export": "Export documents as Parquet, token shards for Megatron, or the model for llama.cpp.",
    "push": "Upload the exported model with its card and lineage to the Hugging Face hub, privately.",
    "lineage": "Show what a checkpoint was made from, or which checkpoints saw a corpus or a document.",
    "trace": "Find the training documents that contain a text, and when a checkpoint read them.",
    "forget": "Remove documents from everything that is made from now on; show which checkpoints read them.",
    "reproduce": "Print the commands that make a checkpoint again, write the files, or --compare it.",
    "summary": "Show a model: its path, training, scores and two samples, and how to open the UI.",
    "report": "Write one HTML page to send: data, removals with examples, scores, lineage, legal fields.",
    "benchmark": "Score a model on benchmarks: accuracies with intervals and chance, and bits per byte.",
    "variants": "List the variants of the recipe, or run a job for each of them.",
    "compare": "Compare variants of the recipe, or runs: settings, loss, benchmarks, cost, and curves.",
    "decide": "Say whether a variant is better, worse or not distinguishable, over seeds and documents.",
    "mixture": "Show the mixture that `mixture.search` proposes, after the job `search_mixture`.",
    "scrub": "Replace personal data and secrets in files: writes OUT/documents.parquet and spans.parquet.",
    "quality": "Measure and judge the quality of each document in files: writes OUT/verdicts.parquet.",
    "dedup": "Find exact and near duplicates in files and verify each: writes OUT/decisions.parquet.",
    "inspect": "Count what quality rejects or would reject; show documents that it or dedup removed or kept.",
    "inspect-shards": "Count documents and tokens of token shards, and show the first.",
    "restore": "Print the texts of a corpus before `edits` cut lines out of them, as JSON lines.",
    "merge": "Average checkpoints into a new model, which is evaluated, exported and has its own lineage.",
    "keep": "Pin a checkpoint, so that nothing removes it; with --no, unpin it.",
    "gc": "List what nothing needs: versions, and training runs beyond a limit; with --delete remove it.",
    "disk": "Show how much disk each part of the store takes, what uses it, and what `gc` would remove.",
    "verify": "Look for damaged files in the store; say what was made from them, and how to repair them.",
    "train-tokenizer": "Train a byte-level BPE tokenizer on files: writes a directory for AutoTokenizer.",
    "tokenize": "Encode files as Megatron token shards: writes OUT/train/*.bin and *.idx, and the tokenizer.",
    "recipe": "Explain the settings of a recipe.",
}


def module(command: str) -> Any:
    """The module of a command, which has `add_arguments(parser)` and `run(options)`."""
    return import_module(f"pipeline.cli.{command.replace('-', '_')}")


def _disk_error(error: OSError) -> str:
    """What an error of a disk says, and what to do where that is known."""
    named, why = error.filename, error.strerror or str(error)
    if error.errno in UNWRITABLE and not named:  # libraries write temporary files without saying so
        place = os.environ.get("TMPDIR", "/tmp")  # `gettempdir` raises where it cannot write
        return f"no file can be written ({why}): free some space, in {place} too, and run again"
    if error.errno in UNWRITABLE:
        return f"{named} cannot be written ({why}): free some space, or make its disk writable, and run again"
    if error.errno in CLOSED and named:
        return f"{named}: {why}: change who may read or write it, and run again"
    return f"{named}: {why}" if named else why


def _parsed(arguments: list[str]) -> argparse.Namespace:
    program = "groundwork" if Path(sys.argv[0]).name == "groundwork" else "python -m pipeline"
    parser = argparse.ArgumentParser(prog=program, description=__doc__)
    commands = parser.add_subparsers(dest="command", title="commands", metavar="COMMAND", required=True)
    for name, about in COMMANDS.items():
        command = commands.add_parser(name, help=about, description=about)
        if name in arguments:  # no other module is imported
            with loading(f"{name}: loading"):
                module(name).add_arguments(command)
            if name not in OWN_RECIPE:
                add_recipe(command)
    if arguments[:1] == ["inspect"]:  # which has a default subcommand
        arguments[1:] = module("inspect").completed(arguments[1:])
    with streams.showing_help(arguments):
        return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. A mistake of the user is one line on standard error, with exit status 2."""
    arguments = command_first([*(sys.argv[1:] if arguments is None else arguments)])
    try:
        with ctrl_c.raises():
            options = _parsed(arguments)
            allow_enough()
            with using_recipe(None if options.command in OWN_RECIPE else getattr(options, "recipe", None)):
                module(options.command).run(options)
            sys.stdout.flush()
        return 0
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except streams.NotPrintedError as error:
        return error.ended("error")
    except (PipelineError, TrainerError) as error:
        problem = str(error)
    except OSError as error:
        problem = _disk_error(error)
    except (MemoryError, ImportError) as error:
        if not is_out_of_memory(error):
            raise
        problem = OUT_OF_MEMORY
    print(f"error: {problem}", file=sys.stderr)
    return 2
