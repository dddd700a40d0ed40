"""Each saved step as an entry of the `checkpoint` asset, recorded while training goes on."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from pipeline.flows import train as train_flow
from pipeline.recipe import Recipe

CHECKPOINTS = dg.DynamicPartitionsDefinition(name="checkpoints")
KEY = dg.AssetKey("checkpoint")
SCORES = {"loss": "training loss", "validation_loss": "validation loss", "bits_per_byte": "bits per byte"}


def checkpoint_spec(recipe: Recipe) -> dg.AssetSpec:
    """Never materialized by itself: training adds an entry for each step that it saves."""
    return dg.AssetSpec(
        KEY,
        deps=["tokenizer", *(dg.AssetKey(["token_shards", name]) for name in recipe.corpus_names)],
        partitions_def=CHECKPOINTS,
        group_name="model",
        kinds={"pytorch"},
        code_version=train_flow.VERSION,
        description="One entry for each saved step of each training run, with the data that it was made from.",
    )


def record(context: dg.AssetExecutionContext, run: train_flow.Run, message: Mapping[str, Any], samples: Sequence[Mapping[str, Any]]) -> None:
    """Adds the entry of a checkpoint that the trainer reports, with what it writes; one recorded already with the same content is left alone."""
    key = f"{run.name}-{message['step']:08d}"
    context.instance.add_dynamic_partitions(CHECKPOINTS.name or "", [key])
    filters = dg.AssetRecordsFilter(KEY, asset_partitions=[key])
    known = context.instance.fetch_materializations(filters, limit=1).records
    if known and (known[0].asset_materialization.tags or {}).get("dagster/data_version") == message["data_version"]:
        return
    upstream = {f"dagster/input_data_version/{name}": version for name, version in run.work.inputs.items()}
    metadata = {
        "step": message["step"],
        "tokens": message["tokens"],
        "path": dg.MetadataValue.path(message["path"]),
        "training run": run.name,
        **{shown: message[name] for name, shown in SCORES.items() if message.get(name) is not None},
    }
    if samples:
        metadata["samples"] = samples_shown(samples)
    context.log_event(
        dg.AssetMaterialization(
            KEY,
            partition=key,
            metadata=metadata,
            tags={"dagster/data_version": message["data_version"], "dagster/code_version": train_flow.VERSION, **upstream},
        )
    )


def samples_shown(samples: Sequence[Mapping[str, Any]]) -> dg.MarkdownMetadataValue:
    """What a model writes after each prompt."""
    return dg.MetadataValue.md("\n\n".join(f"**{sample['prompt']}**\n\n```text\n{sample['text']}\n```" for sample in samples))
