"""Records each saved step as an entry of the `checkpoint` asset, and notes which lost their weights."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

import dagster as dg

from pipeline.assets.metadata import materialized, table
from pipeline.assets.used_recipe import CHECKPOINT, EVALUATED, ON_DISK, SAVED, UsedRecipe
from pipeline.recipe.recipe import Recipe
from pipeline.steps.lineage.checkpoints import Checkpoint, planned, read
from pipeline.steps.stages import final_assets
from pipeline.steps.training import plan
from pipeline.store import keys
from pipeline.store.errors import PipelineError
from pipeline.store.fingerprint import HASH_SHOWN
from pipeline.store.manifest import Version
from pipeline.store.store import Store
from pipeline.store.training_runs import saved_steps
from trainer.system.durable import read_json
from trainer.system.run_history import MANIFEST, RunHistory, reported, step_name

BRANCHES = "trainings that continued from here"
WIDTH = 76  # characters of a line that the page shows whole
FIGURES = {
    "bits_per_byte": "bits per byte",
    "loss": "loss",
    "perplexity": "perplexity",
    "held_out_bytes": "held-out bytes",
    "validation_tokens": "held-out tokens",
}
# The columns of a table, all of them of held-out text. With longer names it is wider than the page.
PER_CORPUS = {"bits_per_byte": "bits per byte", "validation_tokens": "tokens", "validation_bytes": "bytes"}
# How long a checkpoint keeps the optimizer's state, by `training.checkpoint.optimizer`.
OPTIMIZER_KEPT = {
    "all": "as long as the checkpoint",
    "newest": "until a newer checkpoint is complete",
    "none": "until a newer checkpoint, or the training, is complete",
}
SCORES = {
    "loss": "training loss",
    "validation_loss": "validation loss",
    "bits_per_byte": "bits per byte",
    "perplexity": "perplexity",
}


def checkpoint_spec(recipe: Recipe, used: UsedRecipe) -> dg.AssetSpec:
    """The asset `checkpoint`: training adds an entry for each saved step, nothing else materializes it."""
    return dg.AssetSpec(
        used.asset(CHECKPOINT),
        deps=[used.asset(key) for key in (keys.TOKENIZER, *final_assets(recipe))],
        partitions_def=used.partitions(SAVED),
        group_name=used.name("model"),
        kinds={"pytorch"},
        code_version=plan.VERSION,
        description="One entry for each saved step of each training run, with its scores, its text samples "
        "and the data that it was trained on.",
    )


def record(
    context: dg.AssetExecutionContext,
    run: plan.PlannedRun,
    message: Mapping[str, Any],
    samples: Sequence[Mapping[str, Any]],
    used: UsedRecipe,
) -> None:
    """Adds the entry of a reported checkpoint with its samples, unless the same content is recorded."""
    key = step_name(run.name, message["step"])
    context.instance.add_dynamic_partitions(used.name(SAVED), [key])
    filters = dg.AssetRecordsFilter(used.asset(CHECKPOINT), asset_partitions=[key])
    if not _is_recorded(context.instance, filters, message):
        _log_entry(context, run, key, message, samples, used)
    update_weights(context.instance, Store(run.config.run_dir.parents[1]), used)


def record_saved(context: dg.AssetExecutionContext, run: plan.PlannedRun, used: UsedRecipe) -> None:
    """Adds the entries that Dagster lacks of a training that has ended: they were wiped in the UI, or
    Dagster's home is new. They have no samples.
    """
    known = context.instance.get_materialized_partitions(used.asset(CHECKPOINT))
    for step, path in RunHistory(run.config.run_dir).checkpoints().items():
        if step_name(run.name, step) in known:
            continue
        try:
            message = reported(path, read_json(path / "state.json"), read_json(path / MANIFEST)["files"])
            record(context, run, message, [], used)
        except (OSError, ValueError, KeyError, PipelineError) as error:
            context.log.warning(f"{path}: gets no entry, since it cannot be read ({error})")


def _is_recorded(
    instance: dg.DagsterInstance, filters: dg.AssetRecordsFilter, message: Mapping[str, Any]
) -> bool:
    """Whether the checkpoint has an entry with this content. An entry from before it was noted as deleted
    does not count: the checkpoint is back.
    """
    entries = instance.fetch_materializations(filters, limit=1).records
    entry = entries[0].asset_materialization if entries else None
    if entry is None:
        return False
    deletions = instance.fetch_observations(filters, limit=1).records
    if deletions and deletions[0].storage_id > entries[0].storage_id and Path(message["path"]).exists():
        return False
    return (entry.tags or {}).get("dagster/data_version") == message["data_version"]


def _log_entry(
    context: dg.AssetExecutionContext,
    run: plan.PlannedRun,
    key: str,
    message: Mapping[str, Any],
    samples: Sequence[Mapping[str, Any]],
    used: UsedRecipe,
) -> None:
    path = Path(message["path"])  # it may have been deleted meanwhile
    saved = read(path) if (path / "lineage.json").is_file() else planned(run.config, message["step"])
    beside = context.asset_key.path[:-1]  # prefix and section, which what it is made from shares
    upstream = {
        f"dagster/input_data_version/{'/'.join([*beside, name])}": version
        for name, version in run.work.inputs.items()
    }
    metadata = {
        **({"samples": samples_shown(_traced(saved, samples, used))} if samples else {}),
        **scores(smoothed(message, run.config.run_dir)),
        "step": message["step"],
        "tokens": message["tokens"],
        **_lineage(saved, used),
        "on disk": "yes",
        **(
            {"weights": saved.mean}
            if saved.mean
            else {"optimizer kept": OPTIMIZER_KEPT[run.config.training.checkpoint.optimizer]}
        ),
        "path": dg.MetadataValue.path(message["path"]),
        "training run": run.config.name,
    }
    context.log_event(
        dg.AssetMaterialization(
            used.asset(CHECKPOINT),
            partition=key,
            metadata=metadata,
            tags={
                "dagster/data_version": message["data_version"],
                "dagster/code_version": plan.VERSION,
                **upstream,
            },
        )
    )


def _traced(
    saved: Checkpoint, samples: Sequence[Mapping[str, Any]], used: UsedRecipe
) -> Sequence[Mapping[str, Any]]:
    """The samples, each with the longest span that it has from training text, where that
    text has an index.
    """
    # here, because they load compiled kernels
    from pipeline.steps.lineage import readers
    from pipeline.steps.trace import trace

    try:
        searcher = trace.Searcher(readers.readers(Store(saved.run.parents[1]), saved)[0])
        spans = [searcher.trace(sample["text"], trace.LEAST_TOKENS, 1).longest for sample in samples]
    except PipelineError:  # no index yet, or shards that are gone: the samples are shown all the same
        return samples
    command = used.meant(f"`python -m pipeline trace --samples {saved.name}`")
    told = [wrap(span.described if span else trace.NOTHING, WIDTH) for span in spans]
    return [
        {**sample, "origin": "  \n".join([*lines, command])}  # Markdown breaks a line after two spaces
        for sample, lines in zip(samples, told, strict=True)
    ]


def note_branch(
    context: dg.AssetExecutionContext, run: plan.PlannedRun, start: Mapping[str, Any], used: UsedRecipe
) -> None:
    """Says in the entry of a checkpoint that a training goes on from it, and in the log when it does."""
    trunk = start["trunks"][-1]
    if str(start["resumed_from"]).endswith(f"-{trunk['step']:08d}"):
        context.log.info(
            f"continuing from {trunk['run']} at step {trunk['step']:,} of {run.config.training.steps:,}: "
            f"{trunk['tokens']:,} tokens are trained already"
        )
    name = step_name(trunk["run"], trunk["step"])
    asset = used.asset(CHECKPOINT)
    filters = dg.AssetRecordsFilter(asset, asset_partitions=[name])
    found = context.instance.fetch_materializations(filters, limit=1).records
    entry = found[0].asset_materialization if found else None
    if entry is None:  # Dagster does not know the trunk
        return
    noted = entry.metadata.get(BRANCHES)
    known = str(noted.value).split(", ") if noted else []
    if run.config.name not in known:
        metadata = {**entry.metadata, BRANCHES: ", ".join([*known, run.config.name])}
        context.log_event(
            dg.AssetMaterialization(asset, partition=name, metadata=metadata, tags=dict(entry.tags or {}))
        )


def add_entry(
    context: dg.OpExecutionContext, asset: dg.AssetKey, name: str, version: Version, facts: Mapping[str, Any]
) -> None:
    """Adds to an external asset what was measured of the checkpoint `name`."""
    tags = {
        "dagster/data_version": version.data_version,
        "dagster/code_version": version.manifest["code_version"],
    }
    metadata = materialized(version, facts).metadata
    context.log_event(dg.AssetMaterialization(asset, partition=name, metadata=metadata, tags=tags))


def update_weights(instance: dg.DagsterInstance, store: Store, used: UsedRecipe) -> list[str]:
    """Compares the checkpoints that Dagster knows with those on disk: updates the partitions to evaluate, and
    notes on each entry whether its weights were deleted. Returns the names of those on disk.
    """
    # Before the disk is read, so that a step that is saved in between is not taken for a deleted one.
    known, listed, evaluations = (
        set(instance.get_dynamic_partitions(used.name(partitions)))
        for partitions in (SAVED, ON_DISK, EVALUATED)
    )
    saved = [key for key in saved_steps(store) if key in known]
    _change(instance, used.name(ON_DISK), listed, set(saved))
    evaluated = {
        key
        for asset in (keys.CHECKPOINT_EVALUATION, keys.BENCHMARKS)
        for key in instance.get_materialized_partitions(used.asset(asset))
    }
    _change(instance, used.name(EVALUATED), evaluations, {*saved, *evaluated})
    asset_key = used.asset(CHECKPOINT)
    for key in _unnoticed_deletions(instance, asset_key, known.difference(saved)):
        instance.report_runless_asset_event(
            dg.AssetObservation(
                asset_key,
                partition=key,
                description="The weights were deleted, by `checkpoint.keep_last` of their run or by hand.",
                metadata={"on disk": "no, deleted"},
            )
        )
    return saved


def _change(instance: dg.DagsterInstance, partitions: str, before: set[str], now: set[str]) -> None:
    instance.add_dynamic_partitions(partitions, sorted(now - before))
    for key in before - now:
        instance.delete_dynamic_partition(partitions, key)


def _unnoticed_deletions(instance: dg.DagsterInstance, asset: dg.AssetKey, missing: set[str]) -> list[str]:
    """The `missing` checkpoints that have an entry, but neither a note of a deletion since then nor a
    directory. One whose directory exists is in another store.
    """
    made, noted = (
        instance.get_latest_storage_id_by_partition(asset, kind)
        for kind in (dg.DagsterEventType.ASSET_MATERIALIZATION, dg.DagsterEventType.ASSET_OBSERVATION)
    )
    found = []
    for key in sorted(key for key in missing & made.keys() if noted.get(key, 0) < made[key]):
        filters = dg.AssetRecordsFilter(asset, asset_partitions=[key])
        entry = instance.fetch_materializations(filters, limit=1).records[0].asset_materialization
        path = entry and entry.metadata.get("path")  # none in an entry that a person reported in the UI
        if not (path and Path(str(path.value)).exists()):
            found.append(key)
    return found


def scores(message: Mapping[str, Any]) -> dict[str, float]:
    """The SCORES that a message holds, by label."""
    return rounded({label: message.get(name) for name, label in SCORES.items()})


def smoothed(message: Mapping[str, Any], run_dir: Path) -> Mapping[str, Any]:
    """The message with the running mean of the loss in place of the loss, which may be a spike."""
    losses = RunHistory(run_dir, message["step"]).losses
    return {**message, "loss": losses[-1]} if losses else message


def rounded(figures: Mapping[str, float | None]) -> dict[str, float]:
    """The figures that were measured, with four decimals: nobody compares more."""
    return {name: round(value, 4) for name, value in figures.items() if value is not None}


def samples_shown(samples: Sequence[Mapping[str, Any]]) -> dg.MarkdownMetadataValue:
    """The text that a model writes after each prompt."""
    return dg.MetadataValue.md(
        "\n\n".join(
            f"**{sample['prompt']}**\n\n```text\n{sample['text']}\n```\n\n{sample.get('origin', '')}".rstrip()
            for sample in samples
        )
    )


def evaluated(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """The scores on all held-out text and on each corpus, with those of compressors where they are known."""
    figures = {label: evaluation[name] for name, label in FIGURES.items() if name in evaluation}
    rows = (
        {"corpus": corpus}
        | {PER_CORPUS.get(name, name): value for name, value in (numbers | rounded(numbers)).items()}
        for corpus, numbers in evaluation["per_corpus"].items()
    )
    return {**rounded(figures | evaluation.get("compressors", {})), "per corpus": table(rows)}


def _lineage(checkpoint: Checkpoint, used: UsedRecipe) -> dict[str, Any]:
    """The output of `python -m pipeline lineage` in short."""
    libraries = ", ".join(f"{name} {version}" for name, version in checkpoint.libraries.items())
    return {
        # two tables, since one of all columns is wider than the page
        "corpora": table(_documents(checkpoint, name) for name in checkpoint.corpora),
        "epochs of corpora": table(_epochs(checkpoint, name) for name in checkpoint.corpora),
        "recipe": dg.MetadataValue.json(checkpoint.lineage["recipe"]),
        "code": checkpoint.lineage["git_commit"] or "unknown, not a git checkout",
        "libraries": libraries or "unknown, the step was deleted",
        "lineage": used.meant(f"python -m pipeline lineage {checkpoint.name}"),
    }


def _documents(checkpoint: Checkpoint, name: str) -> dict[str, str | int]:
    """A corpus at a checkpoint: the documents that each stage kept, the tokens trained on."""
    assets = checkpoint.lineage["assets"]
    raw, quality = assets[keys.raw(name)], assets[keys.quality(name)]
    return {
        "corpus": name,
        "documents": raw["counts"]["documents"],
        "kept by quality": quality["counts"]["kept"],
        "kept by dedup": checkpoint.lineage["dedup"].get(name, {}).get("kept", 0),
        "tokens until then": checkpoint.corpus_tokens.get(name, 0),
    }


def _epochs(checkpoint: Checkpoint, name: str) -> dict[str, str | int | float]:
    """The version and the revision of a corpus, its tokens, and how often they were trained on by then."""
    assets = checkpoint.lineage["assets"]
    raw = assets[keys.raw(name)]
    return {
        "corpus": name,
        "raw": raw["data_version"][:HASH_SHOWN],
        "revision": raw["inputs"].get("revision", "-")[:HASH_SHOWN],
        "train tokens": assets[keys.token_shards(name)]["counts"]["train_tokens"],
        "epochs until then": round(checkpoint.epochs(name), 4),
    }
