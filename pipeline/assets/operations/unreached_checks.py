"""The checks that a run planned and did not evaluate, because it was killed or failed before."""

import dagster as dg

PLANNED = dg.DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED
EVALUATED = dg.DagsterEventType.ASSET_CHECK_EVALUATION
CHECK_HISTORY = 25  # runs, of which all but the last may have been killed before the check


def restore(instance: dg.DagsterInstance, run_id: str) -> None:
    """Reports the last result again of every check that the run planned and did not evaluate. The UI would
    show each as "Execution failed", though nothing has changed.
    """
    planned, evaluated = (
        [entry.dagster_event for entry in instance.all_logs(run_id, kind) if entry.dagster_event]
        for kind in (PLANNED, EVALUATED)
    )
    reached = {event.asset_check_evaluation_data.asset_check_key for event in evaluated}
    for key in {event.asset_check_planned_data.asset_check_key for event in planned} - reached:
        history = instance.event_log_storage.get_asset_check_execution_history(key, limit=CHECK_HISTORY)
        events = (record.event.dagster_event for record in history if record.event)
        last = next((event for event in events if event and event.event_type is EVALUATED), None)
        if last:
            instance.report_runless_asset_event(last.asset_check_evaluation_data)
