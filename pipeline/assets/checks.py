"""Checks that stop what comes after an asset."""

import logging

import dagster as dg

from pipeline.assets.resources import Workshop
from pipeline.flows import dedup as dedup_flow
from pipeline.flows.dedup_guard import alarms

log = logging.getLogger(__name__)


def dedup_check() -> dg.AssetChecksDefinition:
    """Tokenizer and shards wait for it."""

    @dg.asset_check(
        asset=dedup_flow.KEY,
        name="removes_no_more_than_expected",
        blocking=True,
        description="No corpus loses a larger share, and no document stands for more, than `dedup_guard` in the recipe allows.",
    )
    def _check(workshop: Workshop) -> dg.AssetCheckResult:
        found = alarms(workshop.store.current(dedup_flow.KEY), workshop.recipe.dedup_guard)
        for alarm in found:
            log.error("%s", alarm)
        return dg.AssetCheckResult(passed=not found, description="; ".join(found) or None, metadata={"alarms": len(found)})

    return _check
