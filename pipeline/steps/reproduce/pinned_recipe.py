"""The recipe that makes a checkpoint again, with all pinned that can be."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter

from pipeline.plugins.settings import OWN_MODEL
from pipeline.recipe.post_training import JOBS
from pipeline.sources import SourceConfig
from pipeline.sources.listing import is_url
from pipeline.steps.corpus.ingest import Raw
from pipeline.steps.lineage.checkpoints import Checkpoint
from pipeline.store import keys, variant_names
from pipeline.store.errors import PipelineError
from pipeline.store.forgotten import forgotten
from pipeline.store.keys import FORGOTTEN
from pipeline.store.store import Store, StoreError
from trainer.system.paths import at_home

# Settings of a recipe that name files, by paths that may start at the recipe.
PATHS = ("path", "paths", "language_model", "fasttext")


def pinned(wanted: Sequence[Checkpoint], relative_to: Path) -> dict[str, Any]:
    """The recipe at the corpora's revisions, which saves and keeps the steps of the checkpoints."""
    newest = wanted[-1]
    base, *tuned = lineages_of(newest)
    recipe: dict[str, Any] = yaml.safe_load(yaml.safe_dump(base["recipe"]))
    recipe.pop("post_training", None)
    if tuned:
        recipe["post_training"] = {section_of(lineage): lineage["post_training"] for lineage in tuned}
    recipe = _with_whole_paths(recipe, relative_to)
    for lineage in (base, *tuned):
        for corpus in corpora_of(recipe, lineage):
            read = lineage["assets"][keys.raw(corpus["name"])]["inputs"]
            if "revision" in read:
                corpus["source"]["revision"] = read["revision"]
    machine = newest.lineage["training"].get("machine", {})
    if machine.get("device") == "cpu":  # elsewhere threads decide no sum
        recipe["training"]["threads"] = machine["threads"]
    saves = recipe["post_training"][section_of(tuned[-1])]["training"] if tuned else recipe["training"]
    end = newest.lineage["training"]["config"]["max_tokens"]  # which is saved in any case
    every = (
        math.gcd(*(checkpoint.tokens for checkpoint in wanted if checkpoint.tokens < end)) or newest.tokens
    )
    saves["checkpoint"] = {"every_tokens": every, "keep_every_tokens": every}
    half_life = (saves.get("averaging") or {}).get("half_life_tokens")
    saves["averaging"] = half_life and {"half_life_tokens": half_life}  # the checkpoint is no mean of others
    return recipe


def lineages_of(checkpoint: Checkpoint) -> list[Mapping[str, Any]]:
    """The lineage of the pretraining, and of each section of `post_training` up to the checkpoint."""
    lineages = [checkpoint.lineage]
    while "post_training" in lineages[0]:
        lineages.insert(0, lineages[0]["pretrained"]["lineage"])
    return lineages


def section_of(lineage: Mapping[str, Any]) -> str:
    """The section of `post_training` that a lineage is of."""
    return variant_names.split(lineage["variant"], JOBS)[1]


def corpora_of(recipe: dict[str, Any], lineage: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The corpora of a recipe, or of the section of it that a lineage is of."""
    section = recipe["post_training"][section_of(lineage)] if "post_training" in lineage else recipe
    return section["corpora"]


def _with_whole_paths(settings: Any, directory: Path, name: str = "") -> Any:
    """The settings below `name`, with whole paths for those that start at the recipe's `directory`."""
    if isinstance(settings, list):
        return [_with_whole_paths(entry, directory, name) for entry in settings]
    if isinstance(settings, dict):  # what code of one's own does with its `params` is not known here
        return {
            key: value if key == "params" else _with_whole_paths(value, directory, key)
            for key, value in settings.items()
        }
    if name not in PATHS or not isinstance(settings, str) or is_url(settings) or settings == OWN_MODEL:
        return settings
    return str(directory / at_home(settings))


def source_notes(
    store: Store, lineage: Mapping[str, Any], corpus: dict[str, Any], out: Path
) -> Iterator[str]:
    """Notes on whether the source of a corpus holds what it did then. If it does not, and the store still has
    the earlier documents, the corpus reads those.
    """
    name, source = corpus["name"], corpus["source"]
    raw = lineage["assets"][keys.raw(name)]
    if any(path.endswith("?...") for path in source.get("paths", ())):
        yield (
            f"# corpus {name} was read from URLs with a query, which is not recorded: complete them in "
            f"{out / 'recipe.yaml'}"
        )
        return
    if raw["inputs"].get(FORGOTTEN) != forgotten(store.files, name).inputs.get(FORGOTTEN):
        yield (
            f"# corpus {name}: documents were removed since then (`forget`), and are not read again: the "
            "bytes will differ"
        )
        return
    if "revision" in raw["inputs"]:
        return
    try:
        read = TypeAdapter(SourceConfig).validate_python(source)
        now = Raw(name, read, raw["params"]["part_bytes"]).observe(store)
    except PipelineError as error:
        state = f"cannot be looked at now ({error})"
    else:
        if now == raw["inputs"]["source"]:
            yield f"# corpus {name}: its source is unchanged"
            return
        state = "has changed since"
    stored = store.root / raw["path"]
    with suppress(StoreError):  # brings it here, if the store is in a bucket
        store.open(keys.raw(name), stored.name).directory()
    if (stored / "manifest.json").is_file():
        corpus["source"] = {"kind": "stored", "path": str(stored)}
        yield f"# corpus {name}: its source {state}; the earlier documents are read from {stored}"
    else:
        yield (
            f"# corpus {name}: its source {state}, and the earlier documents are not stored any more: the "
            "bytes will differ unless you restore the source"
        )
