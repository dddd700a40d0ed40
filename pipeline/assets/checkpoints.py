"""Records each saved step as an entry of the `checkpoint` asset, while training continues."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from pipeline.assets.metadata import asset_key
from pipeline.recipe.recipe import Recipe
from pipeline.steps.lineage.checkpoints import Checkpoint, planned, read
from pipeline.steps.training import plan
from pipeline.store import keys
from trainer.system.perplexity import perplexity

CHECKPOINTS = dg.DynamicPartitionsDefinition(name="checkpoints")
KEY = dg.AssetKey("checkpoint")
SCORES = {"loss": "training loss", "validation_loss": "validation loss", "bits_per_byte": "bits per byte"}


def checkpoint_spec(recipe: Recipe) -> dg.AssetSpec:
    """The asset `checkpoint`: training adds an entry for each saved step, nothing else materializes it."""
    return dg.AssetSpec(
        KEY,
        deps=[keys.TOKENIZER, *(asset_key(keys.token_shards(name)) for name in recipe.corpus_names)],
        partitions_def=CHECKPOINTS,
        group_name="model",
        kinds={"pytorch"},
        code_version=plan.VERSION,
        description="One entry for each saved step of each training run, with its scores, its text samples "
        "and the data that it was trained on.",
    )


def record(
    context: dg.AssetExecutionContext,
    run: plan.Run,
    message: Mapping[str, Any],
    samples: Sequence[Mapping[str, Any]],
) -> None:
    """Adds the entry of a checkpoint that the trainer reports, with its text samples, unless it is recorded
    already with the same content.
    """
    key = f"{run.name}-{message['step']:08d}"
    context.instance.add_dynamic_partitions(CHECKPOINTS.name or "", [key])
    filters = dg.AssetRecordsFilter(KEY, asset_partitions=[key])
    known = context.instance.fetch_materializations(filters, limit=1).records
    if (
        known
        and (known[0].asset_materialization.tags or {}).get("dagster/data_version") == message["data_version"]
    ):
        return
    upstream = {f"dagster/input_data_version/{name}": version for name, version in run.work.inputs.items()}
    metadata = {
        "step": message["step"],
        "tokens": message["tokens"],
        **scores(message),
        **({"samples": samples_shown(samples)} if samples else {}),
        **_lineage(_as_saved(run, message)),
        "path": dg.MetadataValue.path(message["path"]),
        "training run": run.name,
    }
    context.log_event(
        dg.AssetMaterialization(
            KEY,
            partition=key,
            metadata=metadata,
            tags={
                "dagster/data_version": message["data_version"],
                "dagster/code_version": plan.VERSION,
                **upstream,
            },
        )
    )


def _as_saved(run: plan.Run, message: Mapping[str, Any]) -> Checkpoint:
    """The checkpoint with its own lineage, or with the planned lineage if it has been deleted meanwhile."""
    path = Path(message["path"])
    return read(path) if (path / "lineage.json").is_file() else planned(run.config, message["step"])


def scores(message: Mapping[str, Any]) -> dict[str, float]:
    """Those of the SCORES that were measured, and the perplexity on the held-out text."""
    found = {label: message[name] for name, label in SCORES.items() if message.get(name) is not None}
    if message.get("validation_loss") is not None:
        found["perplexity"] = perplexity(message["validation_loss"])
    return rounded(found)


def rounded(figures: Mapping[str, float]) -> dict[str, float]:
    """Four decimals, as many as a person compares."""
    return {name: round(value, 4) for name, value in figures.items()}


def samples_shown(samples: Sequence[Mapping[str, Any]]) -> dg.MarkdownMetadataValue:
    """The text that a model writes after each prompt."""
    return dg.MetadataValue.md(
        "\n\n".join(f"**{sample['prompt']}**\n\n```text\n{sample['text']}\n```" for sample in samples)
    )


def per_corpus(evaluation: Mapping[str, Any]) -> dg.TableMetadataValue:
    """The scores of a model on each corpus."""
    return dg.MetadataValue.table(
        [
            dg.TableRecord({"corpus": name, **rounded(numbers)})
            for name, numbers in evaluation["per_corpus"].items()
        ]
    )


def _lineage(checkpoint: Checkpoint) -> dict[str, Any]:
    """The output of `python -m pipeline lineage` in short."""
    recipe = checkpoint.lineage["recipe"]
    rows = [_corpus(checkpoint, corpus["name"]) for corpus in recipe["corpora"]]
    libraries = ", ".join(f"{name} {version}" for name, version in checkpoint.libraries.items())
    return {
        "corpora": dg.MetadataValue.table([dg.TableRecord(row) for row in rows]),
        "recipe": dg.MetadataValue.json(recipe),
        "code": checkpoint.lineage["git_commit"] or "unknown, not a git checkout",
        "libraries": libraries or "unknown, the step was deleted",
        "lineage": f"python -m pipeline lineage {checkpoint.name}",
    }


def _corpus(checkpoint: Checkpoint, name: str) -> dict[str, str | int | float]:
    """A corpus at the step of a checkpoint: its source, the documents that each stage kept, and how much of
    it was trained on by then.
    """
    assets = checkpoint.lineage["assets"]
    raw, quality, shards = assets[keys.raw(name)], assets[keys.quality(name)], assets[keys.token_shards(name)]
    return {
        "corpus": name,
        "raw": raw["data_version"][:12],
        "revision": raw["inputs"].get("revision", "-"),
        "documents": raw["counts"]["documents"],
        "kept by quality": quality["counts"]["kept"],
        "kept by dedup": checkpoint.lineage["dedup"].get(name, {}).get("kept", 0),
        "train tokens": shards["counts"]["train_tokens"],
        "tokens until then": checkpoint.corpus_tokens.get(name, 0),
        "epochs until then": round(checkpoint.epochs(name), 4),
    }
