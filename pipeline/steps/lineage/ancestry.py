"""Finds the runs in which the ancestors of a checkpoint were trained."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.steps.lineage.checkpoints import Checkpoint, Trained, run_config, runs
from pipeline.store import keys
from pipeline.store.keys import RUNS
from pipeline.store.store import Store
from trainer.config import OPERATIONAL, TrainingConfig


def homes(store: Store, one: Checkpoint) -> Iterator[tuple[Trained, tuple[Store, Path] | None]]:
    """Each ancestor of a checkpoint, with a run that read the same samples in the same order and the store
    that holds it: this store, or one in which the weights still lie. None: there is no such run.
    """
    stores = [store]
    child: Trained = one
    for ancestor in one.ancestors:
        stores += _store_of_weights(child)
        found = ((place, run) for place in stores for run in runs(place) if _trained_alike(run, ancestor))
        yield ancestor, next(found, None)
        child = ancestor


def _store_of_weights(child: Trained) -> list[Store]:
    """The store that holds the weights that training started from, if it is still there."""
    weights = Path(child.lineage["training"]["config"]["pretrained"]["path"] or "")
    parents = weights.resolve().parents if weights.is_absolute() else ()
    return [Store(parent) for parent in parents if (parent / RUNS).is_dir()]


def _trained_alike(run: Path, ancestor: Trained) -> bool:
    config = run_config(run)
    return _order(config.lineage, config.training) == _order(
        ancestor.lineage, TrainingConfig.model_validate(ancestor.lineage["training"]["config"])
    )


def _order(lineage: dict[str, Any], training: TrainingConfig) -> Any:
    """What decides which samples are read, and when."""
    recipe, assets = lineage["recipe"], lineage["assets"]
    return (
        {key: asset["data_version"] for key, asset in assets.items() if _is_read_by_training(key)},
        [(corpus["name"], corpus.get("weight")) for corpus in recipe["corpora"]],
        recipe.get("mixture"),
        training.model_dump(mode="json", exclude={*OPERATIONAL, "pretrained"}),
    )


def _is_read_by_training(key: str) -> bool:
    return key == keys.TOKENIZER or key.startswith(keys.token_shards(""))
