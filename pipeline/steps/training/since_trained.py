"""The model that follows from a recipe, or what has changed since the last one was trained."""

from collections.abc import Mapping
from typing import Any

from pipeline.recipe.recipe import Recipe
from pipeline.store import keys
from pipeline.store.forgotten import forgotten
from pipeline.store.keys import FORGOTTEN
from pipeline.store.manifest import Version
from pipeline.store.store import Store, StoreError
from pipeline.store.work import named
from trainer.config import OPERATIONAL
from trainer.system.run_history import NOT_COMPARED, RunHistory, differing, flat

TEXT, SETTINGS, CODE = "the text", "settings", "the code"
# Of a section of `post_training`, which is as long as its text.
LENGTH = ("training.max_tokens", "training.schedule.warmup_tokens")


class OutdatedModelError(StoreError):
    """The recipe's model was trained before something changed. `run`: its training."""

    def __init__(self, run: RunHistory, changed: Mapping[str, str]):
        what, where = " and ".join(changed), "; ".join(filter(None, changed.values()))
        has = "have" if changed.keys() > {TEXT} or SETTINGS in changed else "has"
        since = f"{what} {has} changed since {run.name} was trained"
        super().__init__(f"{since} ({where})" if where else since)
        self.run = run


def model(store: Store, recipe: Recipe) -> Version:
    """The model that follows from the recipe. Raises OutdatedModelError where there is only one from before a
    change, and StoreError where there is none.
    """
    try:
        return store.current(keys.PRETRAINED_MODEL)
    except StoreError:
        before = store.last_used(keys.PRETRAINED_MODEL)
        if before is None:
            raise
        run = RunHistory(store.root / keys.RUNS / before.path.name)
        if not run.directory.config.is_file():
            raise
        raise OutdatedModelError(run, _changed(store, recipe, run.config["lineage"])) from None


def _was_forgotten(store: Store, corpus: str, version: Version) -> bool:
    """Whether documents of a corpus were removed since this version of its raw text was made."""
    removed = forgotten(store.files, corpus).inputs.get(FORGOTTEN)
    return bool(version.manifest["inputs"].get(FORGOTTEN) != removed)


def _changed(store: Store, recipe: Recipe, lineage: Mapping[str, Any]) -> dict[str, str]:
    """What is not as it was, and where."""
    raw = {name: lineage["assets"].get(keys.raw(name)) for name in recipe.corpus_names}
    read = {name: store.last_used(keys.raw(name)) for name in raw}
    other = [
        name
        for name, version in read.items()
        if version
        and raw[name]
        and (version.data_version != raw[name]["data_version"] or _was_forgotten(store, name, version))
    ]
    found = {TEXT: f"{'corpora' if other[1:] else 'corpus'} {named(other)}"} if other else {}
    then, now = (
        flat({name: value for name, value in one.items() if name not in NOT_COMPARED})
        for one in (lineage["recipe"], recipe.model_dump(mode="json", by_alias=True))
    )
    ignored = (*(f"training.{name}" for name in OPERATIONAL), *(LENGTH if recipe.tuning else ()))
    if settings := [key for key in differing([then, now]) if not key.startswith(ignored)]:
        found[SETTINGS] = named(settings)
    return found or {CODE: ""}
