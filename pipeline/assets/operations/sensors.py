"""All sensors and schedules: re-tokenization when corpora change, evaluation of new checkpoints, alerts."""

from collections.abc import Sequence

import dagster as dg

from pipeline.assets import checkpoints, leaderboard
from pipeline.assets.asset import given
from pipeline.assets.operations import alerts, dagster_storages, orphaned_runs
from pipeline.assets.operations.resources import TRAINING_TAG, PipelineResources
from pipeline.assets.operations.runs import EVALUATE, PARTITION_TAG, trains
from pipeline.assets.used_recipe import UsedRecipe
from pipeline.steps.lineage import source_state
from pipeline.steps.lineage.source_state import ObservedSource, State
from pipeline.store import keys
from pipeline.store.fingerprint import combined
from trainer.system.run_history import NAME_LENGTH

# Which change of which corpora a run was started for. Dagster's UI hides tags that begin with `.dagster/`.
CHANGE_TAG = ".dagster/groundwork_change"
WAITS_TAG = "waits for"
RUN_KEY_TAG, SENSOR_TAG = "dagster/run_key", "dagster/sensor_name"
RETOKENIZE = "retokenize"
CHECKPOINT_SAVED = "checkpoint_saved"
RECENT = 100  # runs, among which the newest training is looked for


def corpora_changed_sensor(assets: list[dg.AssetKey], used: UsedRecipe) -> dg.SensorDefinition:
    """Observes the corpora every two minutes. Evaluation sets are observed in each run.

    Waits for a run of the same job, which may be following the change already. A change whose run failed is
    left to the schedule, or to a person.
    """
    job_name = used.name(RETOKENIZE)

    @dg.sensor(
        name=used.name("corpora_changed"),
        job_name=job_name,
        minimum_interval_seconds=120,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Starts the job retokenize for the corpora whose source has changed since it was read.",
    )
    @given(used)
    def _sensor(context: dg.SensorEvaluationContext, workshop: PipelineResources) -> dg.SensorResult:
        if busy := _busy(context.instance, job_name):
            return dg.SensorResult(skip_reason=busy)
        corpora = source_state.observe_all(workshop.store, workshop.recipe)
        events = [
            dg.AssetObservation(
                used.asset(keys.source(one.corpus)), tags={"dagster/data_version": one.version}
            )
            for one in corpora
            if one.state is State.OUTDATED
        ]
        request = _request(corpora, assets, used)
        if request is None:
            return dg.SensorResult(skip_reason=_nothing_to_do(corpora), asset_events=events)
        same_change = dg.RunsFilter(tags={CHANGE_TAG: request.tags[CHANGE_TAG]})
        if context.instance.get_runs(same_change, limit=1):
            reason = "a run was already started for this change"
            return dg.SensorResult(skip_reason=reason, asset_events=events)
        return dg.SensorResult(run_requests=[request], asset_events=events)

    return _sensor


def nightly_schedule(assets: list[dg.AssetKey], timezone: str, used: UsedRecipe) -> dg.ScheduleDefinition:
    """Off until somebody turns it on in the UI. Retries what failed during the day. Skips the night while a
    run of the same job is in progress.
    """
    job_name = used.name(RETOKENIZE)

    @dg.schedule(
        name=used.name("nightly_retokenize"),
        job_name=job_name,
        cron_schedule="0 3 * * *",
        execution_timezone=timezone,
        description=f"Starts the job retokenize at 3:00 {timezone} each night for out-of-date corpora.",
    )
    @given(used)
    def _schedule(
        context: dg.ScheduleEvaluationContext, workshop: PipelineResources
    ) -> dg.RunRequest | dg.SkipReason:
        if busy := _busy(context.instance, job_name):
            return dg.SkipReason(busy)
        corpora = source_state.observe_all(workshop.store, workshop.recipe)
        return _request(corpora, assets, used) or dg.SkipReason(_nothing_to_do(corpora))

    return _schedule


def new_checkpoint_sensor(used: UsedRecipe) -> dg.SensorDefinition:
    """Notes which checkpoints are on disk, and which runs wait for the GPU. Evaluations wait while a training
    run is in progress: it measures the validation loss itself, and soon deletes its older checkpoints.
    """
    job = used.name(EVALUATE)

    @dg.sensor(
        name=used.name(CHECKPOINT_SAVED),
        job_name=job,
        minimum_interval_seconds=60,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Starts the job evaluate for each checkpoint that is left when a training has ended.",
    )
    @given(used)
    def _sensor(context: dg.SensorEvaluationContext, workshop: PipelineResources) -> dg.SensorResult:
        saved = checkpoints.update_weights(context.instance, workshop.store, used)
        leaderboard.update(context.instance, workshop.store, used)
        runs = orphaned_runs.under_way(context.instance)
        _tag_waiting(context.instance, runs, used.pool)
        if any(map(trains, runs)):
            return dg.SensorResult(skip_reason="a training run is in progress")
        evaluated = context.instance.get_materialized_partitions(used.asset(keys.CHECKPOINT_EVALUATION))
        # They would hold the pool while the next training is about to start.
        stopped = _stopped_training(context.instance)
        missing = [
            key for key in saved if key not in evaluated and not (stopped and key.startswith(f"{stopped}-"))
        ]
        asked = _evaluations(context.instance, job, missing)
        if workshop.recipe.evaluation.titles:  # perhaps since a checkpoint was evaluated
            answered = context.instance.get_materialized_partitions(used.asset(keys.BENCHMARKS))
            asked += [
                dg.RunRequest(run_key=f"benchmarks of {key}", partition_key=key)
                for key in saved
                if key in evaluated - answered
            ]
        requests = _not_yet_started(context.instance, used.name(CHECKPOINT_SAVED), asked)
        left = f", but those of {stopped}, which was stopped, wait for the next training" if stopped else ""
        if asked:
            names = ", ".join(sorted({str(request.partition_key) for request in asked}))
            left = f", or has a run of `{job}`. If that failed or was canceled, start it again: {names}{left}"
        reason = None if requests else f"every checkpoint on disk has been evaluated{left}"
        return dg.SensorResult(requests, skip_reason=reason)

    return _sensor


def _evaluations(instance: dg.DagsterInstance, job: str, names: Sequence[str]) -> list[dg.RunRequest]:
    """A run of the job for each of these checkpoints, and a second one where the first has failed. The run
    key has the name of the checkpoint, so that a failed evaluation is repeated once and not at every tick.
    """
    failed = [
        name
        for name in names
        if instance.get_runs_count(
            dg.RunsFilter(job_name=job, tags={PARTITION_TAG: name}, statuses=[dg.DagsterRunStatus.FAILURE])
        )
    ]
    return [
        *(dg.RunRequest(run_key=name, partition_key=name) for name in names),
        *(dg.RunRequest(run_key=f"{name} again", partition_key=name) for name in failed),
    ]


def _not_yet_started(
    instance: dg.DagsterInstance, sensor: str, requests: Sequence[dg.RunRequest]
) -> list[dg.RunRequest]:
    """The requests whose key has no run yet. Dagster would start no second one, and give no reason."""
    tags = {SENSOR_TAG: sensor, RUN_KEY_TAG: [str(request.run_key) for request in requests]}
    runs = instance.get_runs(dg.RunsFilter(tags=tags)) if requests else ()
    started = {run.tags[RUN_KEY_TAG] for run in runs}
    return [request for request in requests if request.run_key not in started]


def _tag_waiting(instance: dg.DagsterInstance, runs: list[dg.DagsterRun], name: str) -> None:
    """Tags each run that waits for the pool with the run that has it. Dagster lists both as started."""
    pool = instance.event_log_storage.get_concurrency_info(name)
    first = ", ".join(slot.run_id[:8] for slot in pool.claimed_slots)
    waiting = {step.run_id for step in pool.pending_steps if step.assigned_timestamp is None}
    for run in runs:
        if run.run_id in waiting:
            instance.add_run_tags(run.run_id, {WAITS_TAG: f"run {first}, pool {name}"})
    told = sorted(value for _, values in instance.get_run_tags([WAITS_TAG]) for value in values)
    for run in instance.get_runs(dg.RunsFilter(tags={WAITS_TAG: told})) if told else ():
        if run.run_id not in waiting:
            dagster_storages.remove_run_tag(instance, run.run_id, WAITS_TAG)


def _stopped_training(instance: dg.DagsterInstance) -> str:
    """The training of the newest run that trains, such as `6ddca120`, if a person canceled it, who is about
    to start another, or if it failed and Dagster starts it again.
    """
    for run in instance.get_runs(limit=RECENT):
        if TRAINING_TAG in run.tags:
            stopped = run.status is dg.DagsterRunStatus.CANCELED or orphaned_runs.is_retried(run)
            return run.tags[TRAINING_TAG][-NAME_LENGTH:] if stopped else ""
    return ""


def alert_sensors(used: UsedRecipe) -> list[dg.SensorDefinition]:
    """Alerts of failed runs, of trained models, and of a full disk."""

    @dg.run_failure_sensor(
        name=used.name("run_failed"),
        monitor_all_code_locations=True,  # also runs that were started in a terminal
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Logs each failed run with its reason, and posts both as JSON to the URL in "
        f"{alerts.WEBHOOK_VARIABLE}, if it is set.",
    )
    def run_failed(context: dg.RunFailureSensorContext) -> None:
        if used.owns(context.dagster_run):
            alerts.report_failure(context)

    @dg.run_status_sensor(
        name=used.name("training_finished"),
        run_status=dg.DagsterRunStatus.SUCCESS,
        monitor_all_code_locations=True,
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Logs the figures of each model that was trained, and posts them to the URL in "
        f"{alerts.WEBHOOK_VARIABLE}, if it is set.",
    )
    def training_finished(context: dg.RunStatusSensorContext) -> None:
        alerts.report_training(context, used)

    @dg.sensor(
        name=used.name("disk_nearly_full"),
        minimum_interval_seconds=300,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Watches the disk of the store, and posts to the URL in "
        f"{alerts.WEBHOOK_VARIABLE}, if it is set, when little is left. Posts alerts that were still to be "
        "posted again when their process ended.",
    )
    @given(used)
    def disk_nearly_full(context: dg.SensorEvaluationContext, workshop: PipelineResources) -> dg.SkipReason:
        """Alerts once when the disk becomes nearly full, and again only after there was room in between."""
        problem = alerts.low_disk(workshop.store.root)
        if problem and not context.cursor:
            context.log.error(used.meant(problem))
            alerts.send(used.meant(problem), context.log, context.instance)
        alerts.send_waiting(context.log, context.instance)
        context.update_cursor("reported" if problem else "")
        return dg.SkipReason(problem or "there is room on the disk of the store")

    return [run_failed, training_finished, disk_nearly_full]


def _busy(instance: dg.DagsterInstance, job: str) -> str:
    """Why to wait: the oldest run of the job that is in progress. Empty if there is none."""
    runs = [run for run in orphaned_runs.under_way(instance) if run.job_name == job]
    return f"waiting until the run {runs[-1].run_id[:8]} of {job} has ended" if runs else ""


def _request(
    corpora: list[ObservedSource], assets: list[dg.AssetKey], used: UsedRecipe
) -> dg.RunRequest | None:
    """A run of all `assets` but those that the corpora have ready. None if no corpus is out of date."""
    outdated = [corpus for corpus in corpora if corpus.state is State.OUTDATED]
    if not outdated:
        return None
    ready = {used.asset(key) for corpus in corpora for key in corpus.ready}
    # With the time since when the corpus is in use: a change that is undone and made again is a new change.
    change = combined(f"{corpus.corpus} {corpus.version} {corpus.in_use_since}" for corpus in outdated)
    names = ", ".join(corpus.corpus for corpus in outdated)
    return dg.RunRequest(
        asset_selection=[key for key in assets if key not in ready],
        tags={CHANGE_TAG: change[:16], "groundwork/changed": names},
    )


def _nothing_to_do(corpora: list[ObservedSource]) -> str:
    unknown = [corpus.version for corpus in corpora if corpus.state is State.UNKNOWN]
    return "; ".join(unknown) or "no corpus has changed since it was read"
