"""What a command is about: the recipe or one of its variants, its store, a model or checkpoint in it."""

import argparse
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from time import gmtime, strftime
from typing import TextIO

from pipeline.recipe import variants
from pipeline.recipe.loading import recipe_path, stored_at
from pipeline.recipe.post_training import JOBS
from pipeline.recipe.recipe import Recipe
from pipeline.steps.lineage.checkpoints import Checkpoint, checkpoint
from pipeline.steps.recipe_versions import store_of
from pipeline.steps.training import plan, since_trained
from pipeline.store import keys
from pipeline.store.errors import PipelineError
from pipeline.store.manifest import Version
from pipeline.store.store import Store, StoreError, default_store
from pipeline.store.training_runs import model_named, run_histories
from pipeline.store.variant_names import BASE
from trainer.system.errors import TrainerError
from trainer.system.run_history import MODEL_NAMES, STEP, RunHistory, checkpoint_sha256

NEWER_SHOWN = 3  # names


class UsageError(PipelineError):
    """An option has an unknown or impossible value."""


@dataclass(frozen=True)
class Model:
    """A model that a command is about. `path` is an export or, where there is none, a checkpoint. `run` is
    the training up to it, None for a model from elsewhere. `trained` and `exported` are the versions that
    were made of a run which ended with it.
    """

    path: Path
    run: RunHistory | None = None
    trained: Version | None = None
    exported: Version | None = None

    @property
    def made_from(self) -> dict[str, str]:
        """The data version of the export, else of the checkpoint."""
        if self.exported:
            return {self.exported.key: self.exported.data_version}
        return {self.run.name: checkpoint_sha256(self.path)} if self.run else {}


def add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", metavar="NAME", help=f"{MODEL_NAMES}; default: the model of the recipe")
    add_variant(parser)


def add_variant(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--variant",
        metavar="V",
        help="a variant of the recipe, or a section of its `post_training`: `sft`, `hot/sft` of a variant; "
        "default: the recipe as it is written",
    )


def add_section(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--section",
        choices=tuple(JOBS),
        default="",
        help="compare the variants in this section of `post_training`; default: in the pretraining",
    )


def add_checkpoint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "checkpoint",
        metavar="CHECKPOINT",
        nargs="?",
        help="its directory, or its name in the UI: RUN-STEP; RUN alone is its newest",
    )
    parser.add_argument(
        "--variant", metavar="V", help="instead: the last checkpoint of a variant of the recipe, or of `base`"
    )


def opened(variant: str | None = None, recipe: str | None = None) -> tuple[Recipe, Store]:
    """The recipe in use, or the one that is named, as it is written or as a variant; and the store, in which
    each key has the version that follows from it. Raises RecipeError.
    """
    found = variants.load(recipe_path(recipe), BASE if variant is None else variant)
    return found, store_of(found)


def differing_in(section: str, names: Iterable[str]) -> dict[str, Recipe]:
    """The variants of the recipe in use that differ in the pretraining or, if one is named, in a section of
    `post_training`. Raises RecipeError, and UsageError for one of `names` that makes the same as another.
    """
    recipes = variants.load_all(recipe_path())
    sections = recipes[BASE].post_training.sections
    if section not in ("", *sections):
        raise UsageError(f"--section {section}: the recipe has no post_training.{section}: docs/chat.md")
    found = {place: variants.distinct(recipes, place) for place in ("", *sections)}
    for name in names:
        if name in recipes and name not in found[section]:
            elsewhere = next(place for place in found if name in found[place])
            remedy = f"with --section {elsewhere}" if elsewhere else "without --section"
            here = section or "the pretraining"
            raise UsageError(f"{name}: makes the same as another variant in {here}: compare it {remedy}")
    return found[section]


def whole_store() -> Store:
    """The store in use, whatever recipe its versions belong to."""
    return default_store(stored_at())


def is_file(named: str) -> bool:
    """Whether there is a file with this name, or a pipe such as bash's `<(...)`."""
    try:
        return Path(named).is_file() or Path(named).is_fifo()
    except OSError:  # too long for the name of a file
        return False


def text_of(named: str) -> str:
    """The text of the file with this name, of standard input for `-`, else the name itself. Raises UsageError
    unless it is UTF-8, and for a path that is not a file.
    """
    there = is_file(named)
    if not there and named.startswith(("/", "./", "../", "~/")) and not any(map(str.isspace, named)):
        others = "is not a file" if Path(named).exists() else "no such file"
        what = "is a folder" if Path(named).is_dir() else others
        raise UsageError(f"{named!r}: {what}: give its content, or the name of a file that exists")
    try:
        content = Path(named).read_bytes() if there else os.fsencode(named)
        return (sys.stdin.buffer.read() if named == "-" else content).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{named!r}: is not UTF-8 at byte {error.start}: convert it first") from None


def named_checkpoint(store: Store, options: argparse.Namespace) -> Checkpoint:
    """The checkpoint that was named, or the last one of a variant. Raises PipelineError."""
    if options.checkpoint is not None:
        return checkpoint(store, options.checkpoint)
    recipe, store = opened(options.variant)
    trained_by(recipe, store, "its checkpoints can be named")
    return plan.last_checkpoint(store)


def trained_by(recipe: Recipe, store: Store, remedy: str) -> Version:
    """The model that follows from the recipe. Raises StoreError where there is none. Where the only model was
    trained before a change, the error says what has changed and then gives the `remedy`, in which `{run}`
    stands for the run that trained that model.
    """
    try:
        return since_trained.model(store, recipe)
    except since_trained.OutdatedModelError as error:
        job = JOBS.get(recipe.section, "pretrain")
        raise StoreError(f"{error}; {remedy.format(run=error.run.name)}, `{job}` makes a new one") from None


def chosen_model(options: argparse.Namespace, out: TextIO | None = None) -> Model:
    """The model that was named, else that of the recipe or its variant. In the latter case a line in `out`,
    by default standard error, says which model it is and which ones are newer. Raises PipelineError.
    """
    if None not in (options.model, options.variant):
        raise UsageError("give one of --model and --variant")
    if options.model is not None:  # an empty name, of a variable that is not set, is not that of the recipe
        return _named(whole_store(), options.model)
    recipe, store = opened(options.variant)
    model = trained_by(recipe, store, "--model {run} takes it")
    since, times = model.manifest["finished"], _times(store, recipe)  # which brings the runs from a bucket
    run = RunHistory(store.root / keys.RUNS / model.path.name)
    line = f"Run {run.title}, variant {options.variant or BASE}, trained {since}"
    if newer := sorted((name for name in times if times[name] > since), key=times.__getitem__, reverse=True):
        ones = "newer ones were" if newer[1:] else "newer one was"
        line += f"; {len(newer)} {ones} trained with other settings: {', '.join(newer[:NEWER_SHOWN])}"
        line += "; --model NAME takes one"
    print(line, file=out or sys.stderr)
    return _named(store, str(store.current(keys.EXPORTED_MODEL).path))


def _times(store: Store, recipe: Recipe) -> dict[str, str]:
    """When each training with a checkpoint ended or, if it has not, when it was last begun. Only trainings
    with the objective of the recipe count, since a tuned model is no newer one of the pretraining.
    """
    ended = {one.path.name: one.manifest["finished"] for one in store.newest_first(keys.PRETRAINED_MODEL)}
    return {
        run.name: ended.get(run.path.name)
        or strftime("%Y-%m-%dT%H:%M:%SZ", gmtime(run.directory.config.stat().st_mtime))
        for run in run_histories(store)
        if run.checkpoints() and _objective(run) == recipe.training.objective
    }


def _objective(run: RunHistory) -> str | None:
    """The objective of a run; None where its settings are damaged, which `verify` reports."""
    try:
        return str(run.config["training"].get("objective", "pretrain"))
    except TrainerError:
        return None


def _named(store: Store, text: str) -> Model:
    """The model of this name: the export of a run that has ended, or the newest checkpoint of another run."""
    path = model_named(store, text)
    models = {one.data_version: one for one in store.newest_first(keys.PRETRAINED_MODEL)}
    for exported in store.newest_first(keys.EXPORTED_MODEL):
        if trained := models.get(exported.manifest["inputs"][keys.PRETRAINED_MODEL]):
            run = RunHistory(store.root / keys.RUNS / trained.path.name, trained.counts["steps"])
            final = run.directory.checkpoint(trained.counts["steps"])
            if path.resolve() in (exported.path.resolve(), final.resolve()):
                return Model(exported.directory(), run, trained, exported)
    if not any((path / place).is_file() for place in ("config.json", "hf/config.json")):
        raise UsageError(f"{text}: no model is there. Give {MODEL_NAMES}")
    step = STEP.fullmatch(path.name)
    return Model(path, RunHistory(path.parents[1], int(step[1])) if step else None)


def evaluation_of(store: Store, model: Model) -> Version | None:
    """The evaluation of an export or a checkpoint, if its run is known and it has one."""
    if model.run is None:
        return None
    made_from = model.exported and model.exported.manifest["inputs"][keys.EVALUATION]
    key = keys.EVALUATION if made_from else keys.checkpoint_evaluation(model.run.name)
    found = (one for one in store.newest_first(key) if made_from in (None, one.data_version))
    return next(found, None)


def check_least(option: str, given: int, least: int = 1) -> None:
    """Raises UsageError for a number below the `least`."""
    if given < least:
        raise UsageError(f"{option} {given}: must be at least {least}")


def check_known(option: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raises UsageError for the first of `names` that is not `known`."""
    known = list(known)
    for name in names:
        if name not in known:
            raise UsageError(f"{option}: unknown {name!r}; choose from {', '.join(known)}")
