"""start: from a folder and a deadline to a model."""

import argparse
import hashlib
import os
import sys
import tempfile
from difflib import get_close_matches
from pathlib import Path

from pipeline.cli import COMMANDS, summary
from pipeline.cli.opening import UsageError, whole_store
from pipeline.recipe.loading import RECIPE_VARIABLE, load_recipe
from pipeline.reports import tables
from pipeline.sources import files
from pipeline.sources.formats.compression import format_of
from pipeline.stages.language import LANGUAGES
from pipeline.stages.quality import PROFILES
from pipeline.start import speed
from pipeline.start.choose import Wishes, check_text, choose
from pipeline.start.folder.look import MOST_SECONDS, Folder, FoundCorpus, look
from pipeline.start.folder.unread import reasons_of
from pipeline.start.horizon import AIM, Deadline
from pipeline.start.jobs import Jobs
from pipeline.start.reasons import choices, notes
from pipeline.start.recipe_file import check_may_write, going_on, write
from pipeline.start.speed import Speed
from pipeline.steps import compile_ahead
from pipeline.store import keys, locks
from pipeline.store.errors import did_you_mean
from trainer.system import paths, terminal
from trainer.system.wording import counted, shell_word

# Of the time: for a look at the folder, for measuring the speed, and for measuring that of a large model.
LOOKING, MEASURING, PATIENCE = 1 / 50, 1 / 15, 1 / 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("folder", metavar="FOLDER", type=_folder, help="the folder with the text, in any mix of formats")
    add("--hours", metavar="H", type=float, help="hours from now until the model is finished; must be given")
    add("-o", "--out", metavar="FILE", type=Path, help="the recipe to write; default: FOLDER.yaml")
    add("--plan", action="store_true", help="write the recipe and stop before the run")
    add("--force", action="store_true", help="replace a recipe that was changed or not written by `start`")
    add("--languages", metavar="L,L", default="", help="keep only these languages, such as en,de")
    add(
        "--for",
        dest="profile",
        metavar="KIND",
        choices=[*PROFILES],
        help=f"the kind of text: {', '.join(PROFILES)}",
    )
    add("--chat", action="store_true", help="then tune the model on the conversations in the folder")


def _folder(written: str) -> Path:
    """Not the current folder for the value of a variable that is not set. `groundwork` takes a misspelled
    command for a folder.
    """
    if not written:
        raise argparse.ArgumentTypeError("is empty: name a folder that holds text")
    if not os.path.lexists(written) and (meant := get_close_matches(written, COMMANDS, n=1, cutoff=0.75)):
        raise argparse.ArgumentTypeError(
            f"{written!r} is neither a folder nor a command: did you mean {meant[0]!r}?"
        )
    return Path(written)


def run(options: argparse.Namespace) -> None:
    wishes = _wishes(options)
    deadline = Deadline(wishes.seconds)
    terminal.whole(deadline.began, deadline.began + AIM * deadline.seconds)
    # Each of the programs that are started would compile all of its modules again: 12 s instead of 5 s.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    folder = options.folder.resolve()
    if not folder.name:
        raise UsageError(f"{options.folder}: is the whole machine: name a folder that holds text")
    store = paths.store_place(None)
    if "://" not in store and Path(store).resolve().is_relative_to(folder):
        raise UsageError(
            f"{options.folder}: holds the store {store}, so the model would learn from what is made: name a "
            "folder that holds text alone, or another store in GROUNDWORK_STORE"
        )
    path = (options.out or folder.with_name(f"{folder.name}.yaml")).absolute()
    if not path.parent.is_dir():
        raise UsageError(f"--out {path}: there is no folder {path.parent}: make it, or name another file")
    if path.is_dir():
        raise UsageError(f"--out {path}: is a folder: name a file, such as {path / folder.name}.yaml")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"{path}: no recipe may be written there: name another file with -o")
    if not options.plan:
        paths.check_home()
    # Two at once would write their plans over each other.
    owner = f"{os.getuid()}-{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:16]}"
    lock = Path(tempfile.gettempdir(), f"groundwork-{owner}.lock")
    with locks.alone(lock) as mine:
        if not mine:
            why = "another `start` is at work with this recipe"
            raise UsageError(f"{path}: {why}: wait until it ends, or name another file with -o")
        try:
            if not options.force:
                check_may_write(path)
            _start(options, wishes, deadline, folder=folder, path=path)
        finally:
            lock.unlink(missing_ok=True)


def _start(
    options: argparse.Namespace, wishes: Wishes, deadline: Deadline, *, folder: Path, path: Path
) -> None:
    with terminal.doing(f"looking at {options.folder}"):
        looks = look(folder, min(MOST_SECONDS, LOOKING * wishes.seconds))
        found = next(looks)
    print("\n".join(_folder_lines(found)), flush=True)
    check_text(found, wishes)
    # What the first run on a machine compiles is compiled before the plan, whose time it takes, and after the
    # look, which has seconds.
    compile_ahead.start()
    compile_ahead.wait()
    with terminal.doing("measuring what quality rejects"):
        (judged,) = looks
    if [corpus.name for corpus in judged.corpora] != [corpus.name for corpus in found.corpora]:
        print("\nBy the quality of their text these are:\n" + "\n".join(_folder_lines(judged)))
    with terminal.doing("measuring how fast this machine trains"):
        usual = min(speed.MOST_SECONDS, MEASURING * wishes.seconds)
        machine = Speed(max(usual, PATIENCE * wishes.seconds))
        chosen = going_on(choose(judged, wishes, machine, deadline.spent), path)
    rows = [(choice.about, choice.value, choice.reason) for choice in choices(chosen)]
    print("", *tables.table("choice,value,because", rows), sep="\n")
    if expected := list(notes(chosen)):
        print("", *expected, sep="\n")
    write(path, chosen)
    load_recipe(path)
    print(f"\nThe recipe: {path}")
    if options.plan:
        for job in ["pretrain", "sft"] if chosen.conversations else ["pretrain"]:
            print(f"Run it: {RECIPE_VARIABLE}={shell_word(path)} dagster job execute -j {job}")
        return
    sys.stdout.flush()
    os.environ.update(_environment() | {RECIPE_VARIABLE: str(path)})
    Jobs(path, chosen, deadline, whole_store().root / keys.RUNS, machine).run()
    parser = argparse.ArgumentParser()
    summary.add_arguments(parser)
    summary.run(parser.parse_args(["--variant", "sft"] if chosen.conversations else []))
    minutes = f"{deadline.spent / 60:,.1f} of {wishes.seconds / 60:,.1f} minutes"
    print(f"\nDone in {minutes}. The recipe: {path}")


def _wishes(options: argparse.Namespace) -> Wishes:
    if options.hours is None:
        raise UsageError(
            "start: say when the model must be finished, in hours from now, as in "
            f"`groundwork {shell_word(options.folder)} --hours 2`"
        )
    if not 0 < options.hours < 10_000:
        raise UsageError(f"--hours {options.hours:g}: give a time above 0 and below 10,000, such as 2 or 0.5")
    languages = tuple(one.strip().lower() for one in options.languages.split(",") if one.strip())
    for language in languages:
        if language not in LANGUAGES:
            hint = did_you_mean(language, LANGUAGES, "write codes such as en,de,zh")
            raise UsageError(f"--languages: unknown {language!r}: {hint}")
    return Wishes(options.hours * 3600, languages, options.profile, options.chat)


def _folder_lines(folder: Folder) -> list[str]:
    total = max(
        sum(corpus.bytes for corpus in folder.corpora) + sum(size for _, size in folder.unread.values()), 1
    )
    rows = [
        {
            "corpus": corpus.name,
            "files": f"{corpus.files:,}",
            "MB": f"{corpus.bytes / 1e6:,.1f}",
            "share": f"{corpus.bytes / total:.0%}",
            "read as": _read_as(corpus),
            "kind": corpus.kind.name if corpus.is_text else corpus.shape.format,
            "languages": ", ".join(
                f"{name} {share:.0%}" for name, share in list(corpus.kind.languages.items())[:3]
            ),
        }
        for corpus in folder.corpora
    ]
    return [
        *tables.lines(rows),
        *(f"not read: {line}" for line in reasons_of(folder.unread, total)),
        f"looked at {folder.sampled:,} of {counted(folder.files, 'files')} in {folder.seconds:.1f} s",
    ]


def _read_as(corpus: FoundCorpus) -> str:
    shape = corpus.shape
    if not shape.plain:
        what = f"rows, column {shape.text_column!r}" if corpus.is_text else shape.format
    else:
        what = " and ".join(dict.fromkeys(_kind_of_file(format_of(path)[0]) for path in corpus.paths))
        what = what if shape.is_file else f"{what}, divided at {shape.document_separator}"
    return what if shape.encoding == "utf-8" else f"{what}, {shape.encoding}"


def _kind_of_file(suffix: str) -> str:
    kinds = {
        "HTML": files.PAGES,
        "mail": (files.MAIL, files.MAILBOX),
        "subtitles": files.SUBTITLES,
        "notebooks": (files.NOTEBOOK,),
        "EPUB": (".epub",),
        "Word": files.WORD,
        "PowerPoint": files.SLIDES,
        "OpenDocument": (*files.OPEN_DOCUMENT, files.FLAT),
        "RTF": (files.RTF,),
    }
    return next((name for name, suffixes in kinds.items() if suffix in suffixes), "plain text")


def _environment() -> dict[str, str]:
    """What Dagster needs to find the job, as the Makefile sets it."""
    ours = {
        "DAGSTER_HOME": str(summary.CHECKOUT / "dagster_home"),
        "DAGSTER_CLI_JOB_EXECUTE_MODULE_NAME": "pipeline.definitions",
        "DAGSTER_CLI_JOB_EXECUTE_WORKING_DIRECTORY": str(summary.CHECKOUT),
        "PYTHONWARNINGS": "ignore:Function",
    }
    return {name: os.environ.get(name) or usual for name, usual in ours.items()}
