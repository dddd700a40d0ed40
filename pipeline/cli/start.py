"""start: from a folder and a deadline to a model."""

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from pipeline.cli.opening import UsageError
from pipeline.cli.summary import CHECKOUT
from pipeline.recipe.loading import RECIPE_VARIABLE, load_recipe
from pipeline.reports import tables
from pipeline.stages.language import LANGUAGES
from pipeline.stages.quality import PROFILES
from pipeline.start.choose import Chosen, Wishes, choose
from pipeline.start.look import Folder, look
from pipeline.start.reasons import choices, notes
from pipeline.start.speed import Speed
from pipeline.start.written import check_may_write, recipe_text, write
from pipeline.store.errors import PipelineError, did_you_mean
from trainer.system import terminal

UNREAD_SHOWN = 8  # files


class FailedJobError(PipelineError):
    """A job that did not end well. What went wrong stands above."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("folder", metavar="FOLDER", type=Path, help="the folder with the text, in any mix of formats")
    add("--hours", metavar="H", type=float, required=True, help="the time until the model is to be there")
    add("-o", "--out", metavar="FILE", type=Path, help="the recipe to write; default: FOLDER.yaml")
    add("--plan", action="store_true", help="write the recipe and stop before the run")
    add("--force", action="store_true", help="replace a file that is not as `start` wrote it")
    add("--languages", metavar="L,L", default="", help="keep only these languages, such as en,de")
    add(
        "--for",
        dest="profile",
        metavar="KIND",
        choices=[*PROFILES],
        help=f"the kind of text: {', '.join(PROFILES)}",
    )
    add(
        "--chat", action="store_true", help="then teach the model to answer, from conversations in the folder"
    )


def run(options: argparse.Namespace) -> None:
    started = time.monotonic()
    wishes = _wishes(options)
    folder = options.folder.resolve()
    if not folder.name:
        raise UsageError(f"{options.folder}: is the whole machine: name a folder that holds text")
    path = (options.out or folder.with_name(f"{folder.name}.yaml")).absolute()
    if not path.parent.is_dir():
        raise UsageError(f"--out {path}: there is no folder {path.parent}: make it, or name another file")
    if not options.force:
        check_may_write(path)
    with terminal.doing(f"looking at {options.folder}"):
        found = look(folder)
    print("\n".join(_found(found)))
    with terminal.doing("measuring how fast this machine trains"):
        chosen = choose(found, wishes, Speed(), time.monotonic() - started)
    print("\n".join(_choices(chosen)))
    write(path, recipe_text(chosen, path.parent))
    load_recipe(path)
    print(f"\nThe recipe: {path}")
    environment = {**_environment(), RECIPE_VARIABLE: str(path)}
    jobs = ["pretrain", "sft"] if chosen.conversations else ["pretrain"]
    if options.plan:
        for job in jobs:
            print(f"Run it: {RECIPE_VARIABLE}={path} dagster job execute -j {job}")
        return
    sys.stdout.flush()
    for job in jobs:
        _execute([sys.executable, "-m", "dagster", "job", "execute", "-j", job], environment)
    variant = ["--variant", "sft"] if chosen.conversations else []
    _execute([sys.executable, "-m", "pipeline", "summary", *variant], environment)
    minutes = (time.monotonic() - started) / 60
    print(f"\nDone in {minutes:,.1f} of {wishes.seconds / 60:,.1f} minutes. The recipe: {path}")


def _wishes(options: argparse.Namespace) -> Wishes:
    if not 0 < options.hours < 10_000:
        raise UsageError(f"--hours {options.hours:g}: give a time above 0, such as 2 or 0.5")
    languages = tuple(one.strip() for one in options.languages.split(",") if one.strip())
    for language in languages:
        if language not in LANGUAGES:
            hint = did_you_mean(language, LANGUAGES, "write codes such as en,de,zh")
            raise UsageError(f"--languages: unknown {language!r}: {hint}")
    return Wishes(options.hours * 3600, languages, options.profile, options.chat)


def _found(folder: Folder) -> list[str]:
    total = max(sum(one.bytes for one in folder.corpora) + sum(size for _, size in folder.unread.values()), 1)
    rows = [
        {
            "corpus": one.name,
            "files": f"{one.files:,}",
            "MB": f"{one.bytes / 1e6:,.1f}",
            "share": f"{one.bytes / total:.0%}",
            "read as": _read_as(one.shape.format, one.shape.text_column, one.shape.encoding),
            "kind": one.kind.name if one.is_text else one.shape.format,
            "languages": ", ".join(
                f"{name} {share:.0%}" for name, share in list(one.kind.languages.items())[:3]
            ),
        }
        for one in folder.corpora
    ]
    lines = [*tables.lines(rows)]
    for name, (why, size) in list(folder.unread.items())[:UNREAD_SHOWN]:
        lines.append(f"not read: {tables.printable(name)} ({size / total:.0%} of the bytes): {why}")
    if more := len(folder.unread) - UNREAD_SHOWN:
        lines += [f"not read: {more:,} more files"] if more > 0 else []
    return [*lines, f"looked at {folder.sampled:,} of {folder.files:,} files in {folder.seconds:.1f} s"]


def _read_as(format: str, column: str | None, encoding: str) -> str:
    what = format if format != "text" else f"rows, column {column!r}" if column else "plain text"
    return what if encoding == "utf-8" else f"{what}, {encoding}"


def _choices(chosen: Chosen) -> list[str]:
    rows = [(one.about, one.value, one.reason) for one in choices(chosen)]
    expected = notes(chosen)
    return ["", *tables.table("choice,value,because", rows), *(["", *expected] if expected else [])]


def _environment() -> dict[str, str]:
    """What Dagster needs to find the job, as the Makefile sets it."""
    ours = {
        "DAGSTER_HOME": str(CHECKOUT / "dagster_home"),
        "DAGSTER_CLI_JOB_EXECUTE_MODULE_NAME": "pipeline.definitions",
        "DAGSTER_CLI_JOB_EXECUTE_WORKING_DIRECTORY": str(CHECKOUT),
        "PYTHONWARNINGS": "ignore:Function",
    }
    return {**ours, **os.environ}


def _execute(command: list[str], environment: dict[str, str]) -> None:
    """Runs a command to its end, also when this one is told to stop: then the job saves and ends."""
    process = subprocess.Popen(command, env=environment)
    try:
        status = process.wait()
    except BaseException:
        process.send_signal(signal.SIGINT)
        process.wait()
        raise
    if status:
        raise FailedJobError(
            f"{' '.join(command[2:])} ended with status {status}; run the same command to resume"
        )
