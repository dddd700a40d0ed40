"""One table of all training runs of the store, which is brought up to date whenever something has changed."""

import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from pipeline.assets.used_recipe import CHECKPOINT, SAVED, UsedRecipe
from pipeline.recipe import variants
from pipeline.reports import branches, comparison, runs_table, tables, variant_arms, verdict, verdict_text
from pipeline.reports.images import as_text, inline
from pipeline.store import keys
from pipeline.store.errors import PipelineError
from pipeline.store.fingerprint import fingerprint
from pipeline.store.store import Store
from pipeline.store.training_runs import checkpoint_name
from pipeline.store.variant_names import BASE
from trainer.system.errors import TrainerError
from trainer.system.run_history import RunHistory, step_name

log = logging.getLogger(__name__)

KEY = "leaderboard"
VERSION_TAG = "dagster/data_version"
# What it shows follows from these files of the store.
WATCHED_FILES = (
    "runs/*/config.yaml",
    "runs/*/checkpoints/*/manifest.json",
    f"{keys.PRETRAINED_MODEL}/*/manifest.json",
    f"{keys.EVALUATION}/*/manifest.json",
    f"{keys.CHECKPOINT_EVALUATION}/*/*/manifest.json",
    f"{keys.BENCHMARKS}/*/*/manifest.json",
    f"{keys.IMPORTED}/*/*/manifest.json",
)
GROWTH = 1.1  # of a run's metrics, after which its row is written again
CURVES, LISTED = 12, 50  # runs
NAMED = 300  # checkpoints
JUDGED = ("variant", "verdict", "difference", "interval", "would be found")  # each compared with the recipe


def leaderboard_spec(used: UsedRecipe) -> dg.AssetSpec:
    """The asset `leaderboard`: runs and the sensor of checkpoints add entries, nothing materializes it."""
    return dg.AssetSpec(
        used.asset(KEY),
        deps=[used.asset(keys.PRETRAINED_MODEL), used.asset(keys.EVALUATION)],
        group_name=used.name("model"),
        kinds={"table"},
        description="All training runs in the store: first the variants of the recipe, by rank if they have "
        "one, then other runs, the newest first, with the settings in which they differ. Each run links to "
        "its newest checkpoint. "
        f"{runs_table.EXPLAINED} {runs_table.OTHER_TEXT}",
    )


def update(instance: dg.DagsterInstance, store: Store, used: UsedRecipe) -> None:
    """Adds an entry if what it shows has changed. An unreadable store or recipe is only logged."""
    key = used.asset(KEY)
    last = instance.get_latest_materialization_event(key)
    shown = last and last.asset_materialization
    try:
        stamp = _stamp(store, used.path)
        if shown and (shown.tags or {}).get(VERSION_TAG) == stamp:
            return
        facts = _facts(instance, store, used)
    except (PipelineError, TrainerError, OSError) as error:
        log.warning("the leaderboard was not brought up to date: %s", error)
        return
    entry = dg.AssetMaterialization(key, metadata=facts, tags={VERSION_TAG: stamp})
    instance.report_runless_asset_event(entry)


def _stamp(store: Store, recipe: Path) -> str:
    store.files.pull_runs()
    names = sorted(str(path) for pattern in WATCHED_FILES for path in store.root.glob(pattern))
    grown = [
        f"{path} {math.log(path.stat().st_size + 1, GROWTH):.0f}"
        for path in sorted(store.root.glob("runs/*/metrics.jsonl"))
    ]
    pinned = [f"{path} {path.read_text()}" for path in sorted(store.root.glob("runs/*/keep.txt"))]
    return fingerprint([str(recipe), recipe.read_text(encoding="utf-8"), names, grown, pinned])


def _facts(instance: dg.DagsterInstance, store: Store, used: UsedRecipe) -> dict[str, Any]:
    recipes = variants.distinct(variants.load_all(used.path))
    compared_on, arms = variant_arms.evidence(recipes)
    runs = comparison.readable(store)
    found = comparison.leaderboard(store, runs, recipes, verdict.ranks(compared_on, arms.values()))
    if not found:
        return {"leaderboard": "no model has been trained yet"}
    page, room = _page(used), runs_table.INLINE
    shown = {
        **dict(runs_table.overlaid(found[:CURVES])),
        **dict(runs_table.inline(found[:LISTED], page)),
        "curves": inline(as_text(runs_table.draw(found[:CURVES])), "loss by tokens and by time"),
        # A text as short as those above would be shown with them, and cut.
        "all runs, all columns": runs_table.markdown(found, page).ljust(room),
        "checkpoints": _checkpoints(instance, runs, used).ljust(room),
    }
    if shared := branches.lines(runs[:LISTED]):
        shown["trunks and branches"] = "\n".join(["```text", *shared, "```"]).ljust(room)
    judged = verdict.against(compared_on, arms, BASE) if arms else []
    if judged:
        shown["verdicts"] = tables.markdown([*verdict_text.summary(arms, judged)], JUDGED)
    facts = {title: dg.MetadataValue.md(text) for title, text in shown.items()}
    return {**facts, **({"control": verdict_text.control(arms, judged)} if judged else {})}


def _page(used: UsedRecipe) -> str:
    """The address of a checkpoint's page, without its name."""
    return f"/assets/{used.asset(CHECKPOINT).to_user_string()}?view=partitions&partition="


def _checkpoints(instance: dg.DagsterInstance, runs: Sequence[RunHistory], used: UsedRecipe) -> str:
    """The last checkpoints, the newest run's first: losses, and which are kept, pinned, evaluated."""
    evaluated = instance.get_materialized_partitions(used.asset(keys.CHECKPOINT_EVALUATION))
    known = instance.get_dynamic_partitions(used.name(SAVED))
    weights = {
        checkpoint_name(path): "pinned" if path.name in run.directory.pinned() else "kept"
        for run in runs
        for path in run.checkpoints().values()
    }
    order = {run.name: number for number, run in enumerate(runs)}
    losses = {
        step_name(run.name, validation["step"]): f"{validation['loss']:.4f}"
        for run in runs[:CURVES]
        for validation in run.validations
    }
    shown = sorted(known, key=lambda name: (order.get(name.partition("-")[0], len(order)), name))[:NAMED]
    rows = [
        {
            "checkpoint": f"[{name}]({_page(used)}{name})",
            "validation loss": losses.get(name, "-"),
            "weights": weights.get(name, "deleted"),
            "evaluated": "yes" if name in evaluated else "no",
        }
        for name in shown
    ]
    return tables.markdown(rows) if rows else "none has been saved"
