"""All training runs of a store, side by side: in which settings they differ, and what came of them."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from pipeline.recipe.overrides import as_text, leaves
from pipeline.store import keys
from pipeline.store.bucket_runs import bring_names
from pipeline.store.training_runs import NAME_LENGTH, RUNS, saved_steps
from pipeline.store.versions import Store, StoreError
from trainer.system.durable import read_json_lines

REPORT = "training-runs-1"
NOT_COMPARED = ("checks", "dedup_guard", "engine", "launch")  # these change no result


@dataclass(frozen=True)
class TrainingRun:
    """A training run. `settings`: those of its recipe, by their full keys. `hours`: the time in steps of all
    attempts, without validations and checkpoints. The scores are those of the last validation.
    """

    name: str
    recipe: str
    settings: dict[str, str]
    planned_tokens: int
    tokens: int
    validation_loss: float | None
    bits_per_byte: float | None
    tokens_per_second: float
    hours: float


def training_runs(store: Store) -> list[TrainingRun]:
    """The runs in a store, the newest first. A finished run is read once, and then found in its report."""
    bring_names(store.root)
    configs = sorted((store.root / RUNS).glob("*/config.yaml"), key=lambda path: -path.stat().st_mtime_ns)
    return [_run(store, config.parent) for config in configs]


def checkpoints_on_disk(store: Store) -> dict[str, int]:
    """How many checkpoints of each run have their weights."""
    names = [name.partition("-")[0] for name in saved_steps(store)]
    return {name: names.count(name) for name in names}


def differences(runs: Sequence[TrainingRun]) -> dict[str, str]:
    """For each run by name, its settings that are not the same in all runs of its recipe, as one line."""
    found = {}
    for run in runs:
        others = [other.settings for other in runs if other.recipe == run.recipe]
        names = sorted({name for settings in others for name in settings})
        differing = [name for name in names if len({settings.get(name) for settings in others}) > 1]
        found[run.name] = ", ".join(f"{name} {run.settings.get(name, 'not set')}" for name in differing)
    return found


def _run(store: Store, run: Path) -> TrainingRun:
    metrics = run / "metrics.jsonl"
    try:
        finished = store.open(keys.PRETRAINED_MODEL, run.name)
    except StoreError:
        return _read(run, metrics)
    made_from = [REPORT, metrics.stat().st_size if metrics.exists() else 0]
    return TrainingRun(**finished.report("training_run", made_from, lambda: asdict(_read(run, metrics))))


def _read(run: Path, metrics: Path) -> TrainingRun:
    records = read_json_lines(metrics)
    steps = [record for record in records if record["kind"] == "train"]
    validations: list[dict[str, Any]] = [record for record in records if record["kind"] == "evaluation"]
    last = validations[-1] if validations else {}
    config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    recipe = {name: value for name, value in config["lineage"]["recipe"].items() if name not in NOT_COMPARED}
    before = [0, *(step["tokens"] for step in steps)]
    seconds = sum(
        (step["tokens"] - earlier) / step["tokens_per_second"]
        for step, earlier in zip(steps, before, strict=False)
    )
    return TrainingRun(
        name=run.name[:NAME_LENGTH],
        recipe=recipe.pop("name"),
        settings={name: as_text(value) for name, value in leaves({**recipe, "training": config["training"]})},
        planned_tokens=config["training"]["max_tokens"],
        tokens=before[-1],
        validation_loss=last.get("loss"),
        bits_per_byte=last.get("bits_per_byte"),
        tokens_per_second=statistics.median(step["tokens_per_second"] for step in steps) if steps else 0.0,
        hours=seconds / 3600,
    )
