"""Re-tokenization by itself: when a corpus has changed, its chain and what depends on it are made again, and
nothing else.
"""

import dagster as dg

from pipeline.assets.metadata import asset_key
from pipeline.assets.operations import orphaned_runs
from pipeline.assets.operations.resources import PipelineResources
from pipeline.steps.lineage import source_state as observe_flow
from pipeline.steps.lineage.source_state import Observed, State
from pipeline.store import keys
from pipeline.store.fingerprint import combined

# what depends on nothing but its own corpus
OF_DOCUMENTS = (keys.source, keys.raw, keys.transformed, keys.scrubbed, keys.quality)
CHANGE_TAG = "groundwork/change"  # which change of which corpora a run was started for


def corpora_changed_sensor(job_name: str, assets: list[dg.AssetKey], beside: str) -> dg.SensorDefinition:
    """Looks every two minutes at the corpora; evaluation sets are looked at in each run.

    Waits while a run of any job but `beside` is under way: it works with the versions in use, which this one
    would change. A change whose run fails is not tried over and over: that is for the schedule, or for a
    person.
    """

    @dg.sensor(
        name="corpora_changed",
        job_name=job_name,
        minimum_interval_seconds=120,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Starts `retokenize` for the corpora whose source changed since it was read.",
    )
    def _sensor(context: dg.SensorEvaluationContext, workshop: PipelineResources) -> dg.SensorResult:
        if busy := _busy(context.instance, beside):
            return dg.SensorResult(skip_reason=busy)
        found = observe_flow.observe_all(workshop.store, workshop.recipe)
        events = [_observation(one) for one in found if one.state is State.OUTDATED]
        request = _request(found, assets)
        if request is None or context.instance.get_runs(
            dg.RunsFilter(tags={CHANGE_TAG: request.tags[CHANGE_TAG]}), limit=1
        ):
            reason = _nothing_to_do(found) if request is None else "a run was started for this change already"
            return dg.SensorResult(skip_reason=reason, asset_events=events)
        return dg.SensorResult(run_requests=[request], asset_events=events)

    return _sensor


def nightly_schedule(job_name: str, assets: list[dg.AssetKey], beside: str) -> dg.ScheduleDefinition:
    """Off until it is turned on in the UI; tries again what failed in the day. Waits as the sensor does, for
    the next night.
    """

    @dg.schedule(
        name="nightly_retokenize",
        job_name=job_name,
        cron_schedule="0 3 * * *",
        description="Starts `retokenize` each night for the corpora that are out of date.",
    )
    def _schedule(
        context: dg.ScheduleEvaluationContext, workshop: PipelineResources
    ) -> dg.RunRequest | dg.SkipReason:
        if busy := _busy(context.instance, beside):
            return dg.SkipReason(busy)
        found = observe_flow.observe_all(workshop.store, workshop.recipe)
        return _request(found, assets) or dg.SkipReason(_nothing_to_do(found))

    return _schedule


def _busy(instance: dg.DagsterInstance, beside: str) -> str:
    """Which run is to be waited for; empty when there is none."""
    names = [
        f"{run.job_name} ({run.run_id[:8]})"
        for run in orphaned_runs.under_way(instance)
        if run.job_name != beside
    ]
    return f"waits until this run has ended, which works with the data in use: {names[-1]}" if names else ""


def _request(found: list[Observed], assets: list[dg.AssetKey]) -> dg.RunRequest | None:
    """A run of all `assets` but the documents of corpora that did not change; None when no corpus is out
    of date.
    """
    outdated = [one for one in found if one.state is State.OUTDATED]
    if not outdated:
        return None
    as_they_are = {
        asset_key(stage(one.corpus))
        for one in found
        if one.state in (State.UP_TO_DATE, State.UNKNOWN)
        for stage in OF_DOCUMENTS
    }
    # A change that comes back after another is another change, so when the corpus came into use is part of
    # it.
    change = combined(f"{one.corpus} {one.version} {one.in_use_since}" for one in outdated)
    return dg.RunRequest(
        asset_selection=[key for key in assets if key not in as_they_are],
        tags={CHANGE_TAG: change[:16], "groundwork/changed": ", ".join(one.corpus for one in outdated)},
    )


def _nothing_to_do(found: list[Observed]) -> str:
    unknown = [one.version for one in found if one.state is State.UNKNOWN]
    return "; ".join(unknown) or "every corpus is as it was read"


def _observation(one: Observed) -> dg.AssetObservation:
    return dg.AssetObservation(asset_key(keys.source(one.corpus)), tags={"dagster/data_version": one.version})
