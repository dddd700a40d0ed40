"""Writes docs/commands.md from the parsers of both programs.

python -m tests.commands_page
"""

import argparse
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import pipeline.cli.recipe_option
import trainer.__main__

BAR = r"\|"
PAGE = Path(__file__).parents[1] / "docs" / "commands.md"

HEAD = """\
# Commands

<!-- Written by `python -m tests.commands_page`. Change the parsers, or the examples there, instead. -->

This page lists every command with all of its options. It assumes that the environment is active (`.
.venv/bin/activate`). Words such as asset, version and run are explained in [concepts.md](concepts.md), jobs
in [jobs.md](jobs.md), and the likeliest errors in [troubleshooting.md](troubleshooting.md).

Commands of `pipeline` work with the store, and those of `trainer` with the files of one training. The program
`groundwork` is shorter to type: `groundwork texts --hours 2` is `start`, `groundwork COMMAND ...` is `python
-m pipeline COMMAND ...`, and `groundwork trainer ...` is `python -m trainer ...`.

## Which recipe and store a command takes

`GROUNDWORK_RECIPE` names the recipe: a path, or the name of a recipe that ships. `GROUNDWORK_STORE` names the
store: a directory, or a bucket such as `s3://bucket/prefix` ([bucket.md](bucket.md)). Export both variables
in every shell, so that commands and the UI use the same recipe and store. `--recipe R` names the recipe of
one command, after the command or before it. `python -m pipeline summary` prints the command that opens the UI
with both.

## Which model a command takes

`summary`, `benchmark`, `push` and `export --format gguf` take the model that follows from the settings of the
recipe, or of `--variant`. This model need not be the newest: settings in the Launchpad, in a `-c` file or of
a variant make other models. So each command first says which model it takes, and which trainings are newer:

```text
Run 6ddca120, variant base, trained 2025-11-25T09:28:04Z; 1 newer one was trained with other settings:
0fa5d331; --model NAME takes one
```

After a change of the text or the settings, no model follows from the recipe until the next training. The
command then says what has changed, and which model to name:

```text
error: the text has changed since 878be810 was trained (corpus manuals);
--model 878be810 takes it, `pretrain` makes a new one
```

`summary` of a training that has not ended, or of a checkpoint before the last, shows the time in steps and
the checkpoint's evaluation, or else the last validation. It shows no samples. `push` takes only an exported
model; every training that has ended is exported. For a model with `attention_sinks`, `push` and `export
--format gguf` say that no reader is known.

### Models

`--model NAME` means the same in every command. NAME is one of these:

- the directory of an exported model (`summary` prints its path), or of a checkpoint;
- the directory of a run, which stands for the newest checkpoint of the run;
- a name that the UI shows, of a run (`6ddca120`) or of a checkpoint (`6ddca120-00000020`). It is looked up in
  `GROUNDWORK_STORE`.

The trainer knows no recipe, so its commands have no default. With a store in a bucket, the trainer needs a
directory: `python -m pipeline lineage CHECKPOINT` prints its `path`. The commands of `pipeline` find names in
a bucket, too.
"""

# What commands are about: the pages that teach it, and the commands in the order in which one needs them.
GROUPS = {
    "From text to a model": ("[start.md](start.md), [own-text.md](own-text.md)", "start init recipe corpora"),
    "A model": (
        "[benchmarks.md](benchmarks.md), [evidence.md](evidence.md)",
        "summary benchmark report push export merge",
    ),
    "Experiments": ("[variants.md](variants.md), [decide.md](decide.md)", "variants compare decide mixture"),
    "Text": ("[filters.md](filters.md)", "inspect restore inspect-shards"),
    "Where things come from": (
        "[evidence.md](evidence.md), [trace.md](trace.md), [forget.md](forget.md)",
        "lineage trace forget reproduce",
    ),
    "The store": ("[architecture.md](architecture.md)", "verify disk keep gc"),
    "Plain files": ("[plain-files.md](plain-files.md)", "scrub quality dedup train-tokenizer tokenize"),
}

EXAMPLES = {
    "start": "start texts --hours 2",
    "init": "init mine.yaml",
    "recipe": """\
recipe --explain                      # the sections of a recipe
recipe --explain training.optimizer   # a section or a setting: type, bounds, default, unit""",
    "corpora": """\
corpora                               # ready-made corpora
corpora --recipe mine.yaml            # what each corpus contributes, and how often it is seen""",
    "summary": """\
summary                               # the recipe's model and how good it is; which trainings are newer
summary --model 6ddca120              # another model""",
    "benchmark": """\
benchmark                             # the benchmarks that the recipe names
benchmark --on core                   # other benchmarks
benchmark --import results.json       # takes the scores that lm-evaluation-harness wrote for a model""",
    "push": """\
push OWNER/NAME                       # the model
push OWNER/NAME --data OUT            # documents that `export --format parquet` wrote, as a data set""",
    "export": """\
export --format parquet -o OUT        # the clean corpora, as a data set with a card
export --format megatron -o OUT       # the token shards
export --format gguf -o OUT           # the model for llama.cpp; needs the extra `gguf`""",
    "merge": """\
merge 6ddca120 --last 8
merge 6ddca120-00000200 6ddca120-00000400 --weights 3,1""",
    "variants": """\
variants                              # their settings, and up to which stage they are the same
variants run fast strict              # `pretrain` for these""",
    "compare": """\
compare                               # the variants of the recipe
compare 6ddca120 0fa5d331             # runs: names in the UI or directories
compare 6ddca120-00000020 0fa5d331    # of a checkpoint, the run up to its step""",
    "decide": "decide base fast --run",
    "inspect": """\
inspect                               # what each quality rule rejected in each corpus
inspect documents max_avg_word_length # documents at random; also `exact`, `near`, `contaminated`, `kept`
inspect what-if min_doc_words=50      # what each rule would reject
inspect against strict                # what a variant rejects""",
    "lineage": """\
lineage 6ddca120-00000200             # what made it
lineage 6ddca120-00000200 --step 100  # what a step read
lineage --corpus manuals              # which checkpoints saw a corpus
lineage --document pep-0001           # or a document, and how often""",
    "trace": """\
trace "a text, or a file that holds one"
trace --near "a text"                 # documents that resemble it, contain most of it or are in it""",
    "forget": """\
forget pep-0001 --reason "asked for"  # which checkpoints read it, and what goes
forget pep-0001 --reason "asked for" --yes""",
    "gc": """\
gc                                    # what nothing needs any more
gc --delete                           # removes it
gc --keep 10                          # also trainings beyond the newest 10 of each recipe
gc --forgotten                        # deletes what holds documents that were removed""",
    "reproduce": """\
reproduce 6ddca120-00000200 -o OUT    # the commands, pinned recipe and hashes that make it again
reproduce --compare OUT 6ddca120-00000200""",
    "keep": """\
keep 6ddca120-00000200
keep 6ddca120-00000200 --no           # unpins it""",
    "scrub": "scrub IN... -o OUT",
    "quality": "quality IN... -o OUT --languages en,de",
    "dedup": "dedup IN... -o OUT",
    "tokenize": "tokenize IN... -o OUT --tokenizer T",
    "trainer train": """\
mine.yaml                             # trains, or resumes
mine.yaml training.seed=2             # with a setting changed""",
    "trainer generate": 'generate --model 6ddca120 --prompt "The"',
    "trainer chat": """\
chat 6ddca120                         # a conversation in the terminal, of any length
chat 6ddca120 --page                  # in the browser""",
    "trainer merge": "merge 6ddca120 --last 8 --output DIR",
    "trainer plan": """\
plan gpu --gpu h100                   # memory, time and cost of a recipe on another machine
plan gpu training.model=1b --gpus 8 --gpu h100""",
}

# Options that many commands have, and what the page says of them once.
SHARED = {
    "--recipe": "another recipe than [GROUNDWORK_RECIPE](#which-recipe-and-store-a-command-takes)",
    "--model": "[a model](#models); default: the model of the recipe",
    "--variant": "a variant of the recipe, or a section of its `post_training`, such as `hot/sft`",
}


class _StoppedError(Exception):
    """Raised in place of reading arguments."""


def _parser(call: Callable[[list[str]], object], arguments: list[str]) -> argparse.ArgumentParser:
    """The parser that `call` would read its arguments with."""
    caught: list[argparse.ArgumentParser] = []

    def stop(parser: argparse.ArgumentParser, *_: object) -> None:
        caught.append(parser)
        raise _StoppedError

    reading = {"parse_args": stop, "parse_intermixed_args": stop}
    with patch.multiple(argparse.ArgumentParser, **reading), suppress(_StoppedError):
        call(arguments)
    if caught:
        return caught[0]
    raise AssertionError(f"{arguments}: reads no arguments")


def page() -> str:
    """The page as Markdown."""
    return "\n".join([HEAD, *_pipeline(), *_trainer()]).rstrip() + "\n"


def _pipeline() -> Iterator[str]:
    left = {*pipeline.cli.COMMANDS}
    for title, (pages, names) in GROUPS.items():
        yield f"## {title}\n\nMore: {pages}.\n"
        for name in names.split():
            left.remove(name)
            parser = pipeline.cli.recipe_option.subparsers(_parser(pipeline.cli.main, [name]))[name]
            yield from _command(name, parser, "python -m pipeline")
    assert not left, f"no group of this page has {left}"


def _trainer() -> Iterator[str]:
    yield "## The trainer\n\nMore: [trainer.md](trainer.md).\n"
    yield from _command("train", _parser(trainer.__main__._train, ["mine.yaml"]), "python -m trainer")
    for name, run in trainer.__main__.COMMANDS.items():
        yield from _command(name, _parser(run, []), "python -m trainer")


def _command(name: str, parser: argparse.ArgumentParser, program: str) -> Iterator[str]:
    title = name if program == "python -m pipeline" else f"trainer {name}"
    yield f"### {title}\n\n{parser.description}\n"
    examples = EXAMPLES.get(title) or " ".join([*([] if name == "train" else [name]), *_needed(parser)])
    yield "\n".join(["```sh", *(f"{program} {example}" for example in examples.splitlines()), "```\n"])
    subcommands = pipeline.cli.recipe_option.subparsers(parser)
    rows = [row for one in parser._actions for row in _row(one)]
    for word, subparser in subcommands.items():
        before = set(rows)
        rows.append(f"| **`{word}`** | {subparser.description} |")
        rows += [row for one in subparser._actions for row in _row(one) if row not in before]
    if rows:
        yield "\n".join(["| | |", "|---|---|", *rows, ""])


def _needed(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The arguments without which a command does not run, options first."""
    for one in sorted(parser._actions, key=lambda action: not action.option_strings):
        if one.required and one.help != argparse.SUPPRESS:
            yield _named(one).rpartition(", ")[2]


def _named(action: argparse.Action) -> str:
    """An argument as one types it."""
    wanted = action.metavar or (f"{{{','.join(action.choices)}}}" if action.choices else action.dest.upper())
    value = "" if action.nargs == 0 else f"{wanted}..." if action.nargs in ("+", "*") else f"{wanted}"
    return " ".join(filter(None, [", ".join(action.option_strings), value]))


def _row(action: argparse.Action) -> Iterator[str]:
    if (
        isinstance(action, argparse._HelpAction | argparse._SubParsersAction)
        or action.help == argparse.SUPPRESS
    ):
        return
    about = (action.help or "") % {"default": action.default}
    option = next(iter(action.option_strings), "")
    if option in SHARED and "; default: " in about:
        about = SHARED[option]
    cells = [f"`{_named(action)}`", about]
    yield f"| {' | '.join(cell.replace('|', BAR) for cell in cells)} |".replace("|  |", "| |")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
