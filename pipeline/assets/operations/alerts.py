"""What went wrong, told where somebody reads it: the daemon's log, and a webhook if there is one."""

import json
import logging
import os
import urllib.error
import urllib.request
from http.client import HTTPException

import dagster as dg

WEBHOOK_VARIABLE = "GROUNDWORK_FAILURE_WEBHOOK"
TIMEOUT_SECONDS = 10.0


def failure_sensor() -> dg.SensorDefinition:
    """Also sees runs that were started in a terminal, which Dagster's own default leaves out."""

    @dg.run_failure_sensor(
        name="run_failed",
        monitor_all_code_locations=True,
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Logs each failed run with its reason, and posts it as JSON to the address in "
        f"{WEBHOOK_VARIABLE}.",
    )
    def _sensor(context: dg.RunFailureSensorContext) -> None:
        run, why = context.dagster_run, reason(context)
        context.log.error(f"{run.job_name} ({run.run_id[:8]}) failed: {why}")
        address = os.environ.get(WEBHOOK_VARIABLE)
        if address:
            text = f"Groundwork: {run.job_name} failed: {why}"
            _post(
                address, {"text": text, "job": run.job_name, "run_id": run.run_id, "reason": why}, context.log
            )

    return _sensor


def reason(context: dg.RunFailureSensorContext) -> str:
    """What the failed steps say; of a run that failed outside its steps, what Dagster says."""
    said = []
    for event in context.get_step_failure_events():
        failure = event.step_failure_data
        described = failure.user_failure_data and failure.user_failure_data.description
        # A step that never ran because another failed gives no reason of its own.
        text = described or (failure.error.message.strip() if failure.error else "")
        said.append(f"{(event.step_key or '').replace('__', '/')}: {text}")
    return "; ".join(said) or context.failure_event.message or "no reason was given"


def _post(address: str, message: dict[str, str], log: logging.Logger) -> None:
    """Says whether it arrived, never where to: the address is a secret."""
    try:
        request = urllib.request.Request(
            address, json.dumps(message).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            log.info(f"told the webhook: {answer.status}")
    except urllib.error.HTTPError as error:
        log.warning(f"the webhook in {WEBHOOK_VARIABLE} answered {error.code}")
    except (OSError, ValueError, HTTPException) as error:
        log.warning(f"the webhook in {WEBHOOK_VARIABLE} cannot be reached: {type(error).__name__}")
