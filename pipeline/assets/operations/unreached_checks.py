"""Keeps the results of checks that a run planned but did not reach. The UI would show each as "Execution
failed", though nothing has changed.
"""

import dagster as dg
from dagster._core.storage.asset_check_execution_record import COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES

PLANNED = dg.DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED
EVALUATED = dg.DagsterEventType.ASSET_CHECK_EVALUATION


def restore(instance: dg.DagsterInstance, run_id: str) -> None:
    """Reports the last result again of every check that the run planned and did not evaluate."""
    planned, evaluated = (
        [entry.dagster_event for entry in instance.all_logs(run_id, kind) if entry.dagster_event]
        for kind in (PLANNED, EVALUATED)
    )
    reached = {event.asset_check_evaluation_data.asset_check_key for event in evaluated}
    for key in {event.asset_check_planned_data.asset_check_key for event in planned} - reached:
        history = instance.event_log_storage.get_asset_check_execution_history(
            key, limit=1, status=COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES
        )
        for record in history:
            if record.event and record.event.dagster_event:
                instance.report_runless_asset_event(record.event.dagster_event.asset_check_evaluation_data)
