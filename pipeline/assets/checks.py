"""Checks of each version. Most stop what comes after the asset; each says in one sentence what it saw and what is allowed."""

import logging
from collections.abc import Callable, Iterator

import dagster as dg

from pipeline.assets.corpora import corpus_key
from pipeline.assets.outcome import explained
from pipeline.assets.resources import Workshop
from pipeline.flows import checks, evaluate, export, train
from pipeline.flows import dedup as dedup_flow
from pipeline.flows.checks import Finding
from pipeline.flows.dedup_guard import alarms
from pipeline.recipe import Recipe

log = logging.getLogger(__name__)

Look = Callable[[Workshop], Finding]


def all_checks(recipe: Recipe) -> list[dg.AssetChecksDefinition]:
    """Of every corpus, of dedup and of the model."""
    return [check for name in recipe.corpus_names for check in _corpus_checks(name)] + [dedup_check(), *_model_checks()]


def _corpus_checks(name: str) -> Iterator[dg.AssetChecksDefinition]:
    raw, scrubbed, quality = (corpus_key(name, stage) for stage in ("raw", "scrubbed", "quality"))
    shards = dg.AssetKey(["token_shards", name])
    yield _check(
        dg.AssetCheckSpec("little_set_aside", asset=raw, blocking=True, description="Few rows cannot be read: `checks.max_set_aside_share`."),
        lambda shop: checks.set_aside(shop.store.current(raw.to_user_string()), shop.recipe.checks),
    )
    yield _check(
        dg.AssetCheckSpec("no_jump_in_pii", asset=scrubbed, description="Not much more PII than in the version before: `checks.max_pii_jump`."),
        lambda shop: checks.pii_rate(shop.store, shop.store.current(scrubbed.to_user_string()), shop.recipe.checks),
    )
    yield _check(
        dg.AssetCheckSpec("enough_is_kept", asset=quality, blocking=True, description="Quality leaves enough: `checks.max_rejected_share`."),
        lambda shop: checks.rejected(shop.store.current(quality.to_user_string()), shop.recipe.checks),
    )
    yield _check(
        dg.AssetCheckSpec("adds_up", asset=shards, blocking=True, description="Every document and token is accounted for, from raw to shards."),
        lambda shop: checks.adds_up(shop.store, name),
    )
    yield _check(
        dg.AssetCheckSpec("is_sound", asset=shards, blocking=True, description="Sizes and hashes are those recorded: `checks.shard_hashes`."),
        lambda shop: checks.sound(shop.store.current(shards.to_user_string()), shop.recipe.checks),
    )
    yield _check(
        dg.AssetCheckSpec("bytes_per_token", asset=shards, blocking=True, description="The tokenizer fits the corpus: `checks.min_bytes_per_token`."),
        lambda shop: checks.bytes_per_token(shop.store.current(shards.to_user_string()), shop.recipe.checks),
    )


def _model_checks() -> list[dg.AssetChecksDefinition]:
    return [
        _check(
            dg.AssetCheckSpec("losses_are_finite", asset=train.KEY, blocking=True, description="No loss of the run is NaN or infinite."),
            lambda shop: checks.finite(shop.store, shop.store.current(train.KEY)),
        ),
        _check(
            dg.AssetCheckSpec("beats_a_bigram_model", asset=evaluate.KEY, description="The model knows more than which token follows which."),
            lambda shop: checks.beats_bigram(shop.store, shop.store.current(evaluate.KEY)),
        ),
        _check(
            dg.AssetCheckSpec("loads", asset=export.KEY, blocking=True, description="The exported files are read back, and computed with."),
            lambda shop: checks.loads(shop.store.current(export.KEY)),
        ),
    ]


def _check(spec: dg.AssetCheckSpec, look: Look) -> dg.AssetChecksDefinition:
    """A check that does not block only warns."""

    @dg.multi_asset_check(name="__".join([*spec.asset_key.path, spec.name]), specs=[spec])
    @explained
    def _looked(workshop: Workshop) -> dg.AssetCheckResult:
        found = look(workshop)
        severity = dg.AssetCheckSeverity.ERROR if spec.blocking else dg.AssetCheckSeverity.WARN
        if not found.passed:
            log.log(logging.ERROR if spec.blocking else logging.WARNING, "%s", found.said)
        return dg.AssetCheckResult(
            passed=found.passed, check_name=spec.name, asset_key=spec.asset_key, severity=severity, description=found.said, metadata=found.numbers
        )

    return _looked


def dedup_check() -> dg.AssetChecksDefinition:
    """Tokenizer and shards wait for it."""

    def look(workshop: Workshop) -> Finding:
        version = workshop.store.current(dedup_flow.KEY)
        found = alarms(version, workshop.recipe.dedup_guard)
        removed, documents = version.counts["removed"], version.counts["documents"]
        said = f"dedup removes {removed:,} of {documents:,} documents, no corpus or cluster more than dedup_guard allows"
        return Finding(not found, "; ".join(found) or said, {"alarms": len(found), "share removed": removed / max(documents, 1)})

    return _check(
        dg.AssetCheckSpec(
            "removes_no_more_than_expected",
            asset=dedup_flow.KEY,
            blocking=True,
            description="No corpus loses a larger share, and no document stands for more, than `dedup_guard` in the recipe allows.",
        ),
        look,
    )
