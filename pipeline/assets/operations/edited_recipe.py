"""What becomes of a run that the UI planned before an edit of the recipe, which may now be invalid or have
other assets.

The process of a run reads the recipe as it is now. The UI knows the recipe that it read when it started.
"""

from typing import Any

import dagster as dg
from dagster_shared.error import SerializableErrorInfo

from pipeline.dagster_internals import should_retry_run
from pipeline.recipe.recipe import RecipeError

RELOAD = "reload the code location, on the page Deployment of the UI, and start the run again"
# Errors with which Dagster refuses the plan of a run whose assets are gone.
REFUSED = ("DagsterExecutionStepNotFoundError", "DagsterInvalidSubsetError")


def added_since(context: dg.OpExecutionContext) -> str:
    """The end of the sentence about a run's failure: which assets of its job the run lacks."""
    run, instance = context.run, context.instance
    if run.remote_job_origin is None or run.job_snapshot_id is None:  # planned where it runs
        return ""
    planned = instance.get_job_snapshot(run.job_snapshot_id)
    if chosen := planned.lineage_snapshot:  # some assets of a job
        planned = instance.get_job_snapshot(chosen.parent_snapshot_id)
    known = {node.node_name for node in planned.dep_structure_snapshot.node_invocation_snaps}
    added = [
        node.name.replace("__", "/")
        for node in context.repository_def.get_job(run.job_name).nodes
        if node.name not in known
    ]
    if not added:
        return ""
    return f". The recipe has assets that the UI has not read yet ({', '.join(sorted(added))}): {RELOAD}"


def removed_since(error: str) -> str:
    """The end of the sentence about a failed run, if its assets are gone. `error`: the class that Dagster
    raised.
    """
    return (
        f". The recipe has lost assets of this run since the UI read it: {RELOAD}" if error in REFUSED else ""
    )


def error_outside_steps(
    instance: dg.DagsterInstance, run_id: str, last: SerializableErrorInfo | None = None
) -> SerializableErrorInfo | None:
    """What the recipe or a resource of a run raised, such as an invalid setting, or else the `last` error."""
    kinds = {dg.DagsterEventType.RESOURCE_INIT_FAILURE, dg.DagsterEventType.ENGINE_EVENT}
    records = instance.get_records_for_run(run_id, of_type=kinds).records
    events = [record.event_log_entry.dagster_event for record in records]
    errors = [event.engine_event_data.error for event in events if event]
    for error in filter(None, (*errors, last)):
        # A mistake in the recipe has a cause of its own, such as YAML's, which names no file.
        while error.cause and (error.cls_name or "").startswith("Dagster"):
            error = error.cause
        return error
    return None


def retry_no_refused_run() -> None:
    """Lets Dagster start no run again that the recipe refuses: it would be refused again. The settings of
    Dagster have one number of retries for all runs that fail outside their steps, also for lost processes.
    """

    def unless_refused(instance: Any, run: dg.DagsterRun, reason: Any) -> bool:
        if not should_retry_run(instance, run, reason):
            return False
        error = error_outside_steps(instance, run.run_id)
        return error is None or error.cls_name not in (*REFUSED, RecipeError.__name__)

    dg.DagsterInstance._should_retry_run = unless_refused  # type: ignore[method-assign]
