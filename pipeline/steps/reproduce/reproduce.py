"""A checkpoint -> a directory that makes it again: its recipe, what it must be like, and commands."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import yaml

from pipeline.steps.lineage.checkpoints import Checkpoint, LineageError, checkpoint
from pipeline.steps.reproduce import commands, made_again, pinned_recipe
from pipeline.store import keys
from pipeline.store.atomic import output_directory
from pipeline.store.errors import PipelineError
from pipeline.store.forgotten import requests
from pipeline.store.keys import FORGOTTEN
from pipeline.store.store import Store
from pipeline.store.training_runs import UnknownRunError
from trainer.config.model_files import TOKENIZER, TOKENIZER_CONFIG


def write(store: Store, checkpoint: Checkpoint, *, out: Path, relative_to: Path) -> list[str]:
    """Fills the directory `out` and returns the commands, notes among them as comments.

    Raises OutputError when there is something at `out`, and PipelineError for a mean of checkpoints of which
    nothing is known any more. Relative paths are resolved against `relative_to`, because a lineage does not
    hold its recipe's directory.
    """
    with output_directory(out) as directory:
        return list(_fill(store, [checkpoint], _Folder(directory, out.absolute(), relative_to)))


@dataclass(frozen=True)
class _Folder:
    """A folder that is filled at `directory` and will be at `out`, for recipes that were in `relative_to`."""

    directory: Path
    out: Path
    relative_to: Path

    def inside(self, name: str) -> Self:
        (self.directory / name).mkdir()
        return type(self)(self.directory / name, self.out / name, self.relative_to)


def _fill(store: Store, wanted: Sequence[Checkpoint], folder: _Folder) -> Iterator[str]:
    """Fills a folder for checkpoints of one run, the newest last. Yields the commands."""
    newest = wanted[-1]
    if newest.saved:
        made_again.write_expected(newest, folder.directory)
    if newest.merged:
        yield from _fill_mean(store, newest, folder)
        return
    recipe = pinned_recipe.pinned(wanted, folder.relative_to)
    lineages = pinned_recipe.lineages_of(newest)
    notes = [
        note
        for lineage in lineages
        for corpus in pinned_recipe.corpora_of(recipe, lineage)
        for note in pinned_recipe.source_notes(store, lineage, corpus, folder.out)
    ]
    if commands.outlived_its_corpora(lineages[0]):
        made = store.root / lineages[0]["assets"][keys.TOKENIZER]["path"]
        copies = folder.inside("tokenizer").directory
        for name in (TOKENIZER, TOKENIZER_CONFIG):
            shutil.copy(store.files.fetch(made / name), copies / name)
        recipe["tokenizer"] = {"from": "tokenizer"}
    if requests(store.files):  # what this store forgot is not read into another
        certificates = shutil.ignore_patterns("certificate.*", ".*")
        copied = folder.directory / "home" / "store" / FORGOTTEN
        shutil.copytree(store.root / FORGOTTEN, copied, ignore=certificates)
    (folder.directory / "recipe.yaml").write_text(
        yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True), encoding="utf-8"
    )
    yield from commands.training_commands(newest, notes, folder.out, folder.relative_to)


def _fill_mean(store: Store, mean: Checkpoint, folder: _Folder) -> Iterator[str]:
    """As `_fill`: the checkpoints of each run in a folder of its own, and the mean of what they give."""
    parents = [_parent(store, mean, merged["checkpoint"]) for merged in mean.merged]
    for run in dict.fromkeys(parent.run for parent in parents):
        wanted = sorted((parent for parent in parents if parent.run == run), key=lambda parent: parent.step)
        yield from _fill(store, wanted, folder.inside(run.name))
    yield from commands.mean_commands(mean, parents, folder.out)


def _parent(store: Store, mean: Checkpoint, name: str) -> Checkpoint:
    """A checkpoint that a mean was made of. Raises PipelineError if nothing is known of its run."""
    try:
        return checkpoint(store, name)
    except (LineageError, UnknownRunError):
        parents = " ".join(merged["checkpoint"] for merged in mean.merged)
        raise PipelineError(
            f"{mean.name} is the mean of other checkpoints, and the run of {name} is not in this store: "
            f"reproduce each where its run is, and merge what comes out as in `python -m pipeline merge "
            f"{parents}`"
        ) from None
