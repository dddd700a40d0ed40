"""Reports failed runs in the daemon's log, and to a webhook if one is set."""

import json
import logging
import os
import urllib.error
import urllib.request
from http.client import HTTPException

import dagster as dg

WEBHOOK_VARIABLE = "GROUNDWORK_FAILURE_WEBHOOK"
TIMEOUT_SECONDS = 10.0


def report(context: dg.RunFailureSensorContext) -> None:
    """Logs a failed run with its reason, and posts both to the webhook if one is set."""
    run, why = context.dagster_run, reason(context)
    context.log.error(f"{run.job_name} ({run.run_id[:8]}) failed: {why}")
    address = os.environ.get(WEBHOOK_VARIABLE)
    if address:
        text = f"Groundwork: {run.job_name} failed: {why}"
        message = {"text": text, "job": run.job_name, "run_id": run.run_id, "reason": why}
        _post(address, message, context.log)


def reason(context: dg.RunFailureSensorContext) -> str:
    """The messages of the failed steps, or Dagster's message if the run failed outside its steps."""
    reasons = []
    for event in context.get_step_failure_events():
        failure = event.step_failure_data
        described = failure.user_failure_data and failure.user_failure_data.description
        # A step that never ran because another failed has no reason of its own.
        text = described or (failure.error.message.strip() if failure.error else "")
        reasons.append(f"{(event.step_key or '').replace('__', '/')}: {text}")
    return "; ".join(reasons) or context.failure_event.message or "Dagster recorded no reason"


def _post(address: str, message: dict[str, str], log: logging.Logger) -> None:
    """Logs whether the message arrived, but not the address, which is a secret."""
    try:
        request = urllib.request.Request(
            address, json.dumps(message).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            log.info(f"posted to the webhook, which answered {answer.status}")
    except urllib.error.HTTPError as error:
        log.warning(f"the webhook in {WEBHOOK_VARIABLE} answered {error.code}")
    except (OSError, ValueError, HTTPException) as error:
        log.warning(f"the webhook in {WEBHOOK_VARIABLE} cannot be reached: {type(error).__name__}")
