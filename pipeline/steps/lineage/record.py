"""The lineage that a checkpoint carries: recipe, code, libraries, and every stage of every corpus."""

import subprocess
from pathlib import Path
from typing import Any

from pipeline.recipe.recipe import Recipe
from pipeline.steps.dedup.limits import by_corpus
from pipeline.steps.stages import of_data
from pipeline.store import keys
from pipeline.store.keys import Key
from pipeline.store.manifest import Version
from pipeline.store.store import Store

ROOT = Path(__file__).parents[3]


def of_recipe(store: Store, recipe: Recipe) -> dict[str, Any]:
    """Recipe, code, and version, parameters, counts of all stages. Raises StoreError if one is missing."""
    versions = {key: store.current(key) for key in of_data(recipe)}
    return {
        "recipe": recipe.model_dump(mode="json", by_alias=True),
        **({"variant": recipe.variant} if recipe.variant else {}),
        # with the lineage of the weights it makes the recipe that was written
        **({"post_training": recipe.tuning.model_dump(mode="json")} if recipe.tuning else {}),
        "git_commit": git_commit(),
        "assets": {str(version.key): _asset(store, version) for version in versions.values()},
        "dedup": by_corpus(versions[keys.DEDUP]),
    }


def _asset(store: Store, version: Version) -> dict[str, Any]:
    manifest = version.manifest
    return {
        "data_version": version.data_version,
        "fingerprint": version.fingerprint,
        "code_version": manifest["code_version"],
        "path": str(version.path.relative_to(store.root)),
        "finished": manifest["finished"],
        # A lineage may be published, so it has the path of a source only as the recipe writes it.
        "params": {name: value for name, value in manifest["params"].items() if name != "source"},
        # Left out: the decisions on each part of the shards. They are many, and all are in the fingerprint.
        "inputs": {
            name: made_from
            for name, made_from in manifest["inputs"].items()
            if not Key.from_path(name).is_decided_part
        },
        "tools": manifest["tools"],
        "counts": version.counts,
    }


def git_commit() -> str | None:
    """The commit of the code, with `-dirty` when files differ from it; None outside a checkout."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        described = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return described.stdout.strip() or None


def described_commit(commit: str | None) -> str:
    """The commit of a lineage in words."""
    if commit is None:
        return "unknown, not a git checkout"
    changed = ", with uncommitted changes" if commit.endswith("-dirty") else ""
    return f"commit {commit.removesuffix('-dirty')}{changed}"
