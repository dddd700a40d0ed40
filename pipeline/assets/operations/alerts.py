"""Alerts: in the log, and to a webhook if one is set, in the form that Slack and others take."""

import json
import logging
import os
import shutil
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from http.client import HTTPException, InvalidURL
from pathlib import Path
from typing import Any

import dagster as dg
from dagster_shared.error import SerializableErrorInfo

from pipeline.assets.operations import orphaned_runs
from pipeline.assets.operations.edited_recipe import error_outside_steps, removed_since
from pipeline.assets.used_recipe import UsedRecipe
from pipeline.recipe.post_training import SECTIONS
from pipeline.sources.source_file import TRY_AGAIN
from pipeline.steps.training.effort import HOUR, took
from pipeline.store import keys, locks
from trainer.system.durable import read_json, write_atomically

WEBHOOK_VARIABLE = "GROUNDWORK_WEBHOOK"
TIMEOUT_SECONDS = 10.0
RETRY_AFTER_SECONDS = (60.0, 240.0, 600.0, 900.0, 1800.0, 3600.0)  # two hours in all
WAITING = "waiting_alerts"  # a folder of Dagster's home; what is in it outlasts the process that posts it
NO_ADDRESS = (ValueError, InvalidURL, str)  # what `urlopen` says of a text that is none
PROCESS = "Run execution process for "
# Less than both: 5% of a small disk may be enough for a run, and 20 GB of a large one.
LOW_DISK_SHARE, LOW_DISK_BYTES = 0.05, 20e9
FACTS = {"validation loss": "validation loss {:.4f}", "bits per byte": "{:.4f} bits per byte"}


def send(text: str, log: logging.Logger, instance: dg.DagsterInstance, **facts: str) -> None:
    """Posts `{"text": ..., **facts}` to the webhook in WEBHOOK_VARIABLE, if that is set. What does not arrive
    is posted again later.
    """
    waits_at = _waiting(instance) / f"{uuid.uuid4()}.json"
    _start({"text": f"Groundwork: {text}", **facts}, log, waits_at)


def send_waiting(log: logging.Logger, instance: dg.DagsterInstance) -> None:
    """Posts the alerts that no process posts any more, since it has ended."""
    for waits_at in sorted(_waiting(instance).glob("*.json")):
        with locks.alone(_lock(waits_at)) as nobody_posts_it:
            message = read_json(waits_at) if nobody_posts_it and waits_at.exists() else None
        if message:
            _start(message, log, waits_at)


def _waiting(instance: dg.DagsterInstance) -> Path:
    return Path(instance.root_directory) / WAITING


def _lock(waits_at: Path) -> Path:
    return waits_at.with_suffix(".lock")


def _start(message: dict[str, str], log: logging.Logger, waits_at: Path) -> None:
    if address := os.environ.get(WEBHOOK_VARIABLE):
        tried = threading.Event()
        # `urlopen` waits so long for each piece of an answer, so a server that drips would hold the sensor.
        arguments = (address, message, log, tried, waits_at)
        threading.Thread(target=_deliver, args=arguments, daemon=True).start()
        if not tried.wait(2 * TIMEOUT_SECONDS):
            log.warning(f"the webhook in {WEBHOOK_VARIABLE} answers too slowly: no longer waiting for it")


def report_failure(context: dg.RunFailureSensorContext) -> None:
    """Alerts of a failed run with its reason, and says whether the run is started again by itself."""
    why = reason(context)
    run = context.instance.get_run_by_id(context.dagster_run.run_id) or context.dagster_run
    name = _shown_name(run)
    what = "failed, and is started again by itself" if orphaned_runs.is_retried(run) else "failed"
    context.log.error(f"{name} ({run.run_id[:8]}) {what}: {why}")
    facts = {"job": run.job_name, "run_id": run.run_id, "reason": why}
    send(f"{name} {what}: {why}", context.log, context.instance, **facts)


def report_training(context: dg.RunStatusSensorContext, used: UsedRecipe) -> None:
    """Alerts of each model that a run trained, of a recipe or of its sections, with its figures. Silent about
    any other run.
    """
    run = context.dagster_run
    made = dg.DagsterEventType.ASSET_MATERIALIZATION
    models = [used.asset(keys.PRETRAINED_MODEL, section) for section in ("", *SECTIONS)]
    for record in context.instance.get_records_for_run(run.run_id, of_type=made).records:
        event = record.event_log_entry.asset_materialization
        if event is None or event.asset_key not in models:
            continue
        metadata = {name: entry.value for name, entry in event.metadata.items()}
        if metadata["reused"] is False:
            model = metadata.get("training run", "a model")
            text = f"{_shown_name(run)} ({run.run_id[:8]}) trained {model}: {_figures(metadata)}"
            context.log.info(text)
            send(text, context.log, context.instance, job=run.job_name, run_id=run.run_id)


def _shown_name(run: dg.DagsterRun) -> str:
    """The job of a run, and the name that the run was given, or else its partition: a variant or a
    checkpoint. A run without a job has a meaningless name of Dagster's, and gets another one here.
    """
    job = "a run of chosen assets" if run.job_name.startswith("__") else run.job_name
    of = run.tags.get("name") or run.tags.get("dagster/partition")
    return f"{job} of {of}" if of else job


def _message(error: SerializableErrorInfo) -> str:
    """The message of an error, without the name of its exception where Dagster has recorded the name."""
    return error.message.strip().partition(f"{error.cls_name}: ")[2] or error.message.strip()


def low_disk(directory: Path) -> str:
    """Says that the disk of `directory` is nearly full. Empty while it is not."""
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    disk = shutil.disk_usage(existing)
    if disk.free >= min(LOW_DISK_SHARE * disk.total, LOW_DISK_BYTES):
        return ""
    free = f"{disk.free / 1e9:.1f} of {disk.total / 1e9:,.0f} GB"
    return f"the disk of {directory} is nearly full, {free} are free: see what `python -m pipeline gc` finds"


def _figures(metadata: Mapping[str, Any]) -> str:
    figures = [form.format(metadata[name]) for name, form in FACTS.items() if name in metadata]
    lasted = took(HOUR * metadata["hours"])
    effort = f"{metadata['tokens']:,} tokens in {lasted}, {metadata['tokens/s']:,} tokens/s"
    cost = [f"{metadata['cost USD']:.2f} USD"] if "cost USD" in metadata else []
    return ", ".join([*figures, effort, *cost])


def reason(context: dg.RunFailureSensorContext) -> str:
    """The messages of the failed steps, or Dagster's message if the run failed outside its steps."""
    reasons = []
    for event in context.get_step_failure_events():
        failure = event.step_failure_data
        described = failure.user_failure_data and failure.user_failure_data.description
        # A step that never ran because another failed has no reason of its own.
        text = described or _failed_checks(context, event.step_key)
        text = text or (_message(failure.error) if failure.error else "")
        reasons.append(f"{(event.step_key or '').replace('__', '/')}: {text}")
    return "; ".join(reasons) or _outside_steps(context)


def _failed_checks(context: dg.RunFailureSensorContext, step: str | None) -> str:
    """What the blocking checks of a step said that did not pass. Dagster's own message only names them."""
    evaluated = dg.DagsterEventType.ASSET_CHECK_EVALUATION
    records = context.instance.get_records_for_run(context.dagster_run.run_id, of_type=evaluated).records
    events = [record.event_log_entry.dagster_event for record in records]
    found = [event.asset_check_evaluation_data for event in events if event and event.step_key == step]
    return "; ".join(one.description or "" for one in found if not one.passed and one.blocking)


def _outside_steps(context: dg.RunFailureSensorContext) -> str:
    """What the recipe or a resource of the run raised, such as an invalid setting, or Dagster's message."""
    failed = context.failure_event.job_failure_data  # None of a run whose process is gone
    last = failed.error if failed else None
    if error := error_outside_steps(context.instance, context.dagster_run.run_id, last):
        return f"{_message(error)}{removed_since(error.cls_name or '')}"
    # Dagster's server notes how the process ended before it marks the run as failed "from outside".
    run = context.dagster_run
    entries = context.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT)
    told = (entry.message.partition(f"{PROCESS}{run.run_id} ")[2] for entry in entries)
    if how := next(filter(None, told), ""):
        return f"the process of this run{orphaned_runs.at_work_on(context.instance, run)} {how}"
    return context.failure_event.message or "Dagster recorded no reason"


def _deliver(
    address: str, message: dict[str, str], log: logging.Logger, tried: threading.Event, waits_at: Path
) -> None:
    lock = _lock(waits_at)
    with ExitStack() as waiting:
        if again := _post(address, message, log):
            seconds = RETRY_AFTER_SECONDS[0]
            log.warning(f"this alert is posted again in {seconds:.0f} seconds, and then more rarely")
            try:
                waiting.enter_context(locks.alone(lock))
                write_atomically(waits_at, json.dumps(message))
            except OSError as error:  # an alert of a full disk, for example
                log.warning(f"{waits_at} cannot be written ({error}): this alert ends with its process")
        tried.set()
        if again:
            _post_again(address, message)
        for path in (waits_at, lock):
            path.unlink(missing_ok=True)


def _post_again(address: str, message: dict[str, str]) -> None:
    log = logging.getLogger(__name__)  # that of a sensor ends with its tick
    for seconds in RETRY_AFTER_SECONDS:
        time.sleep(seconds)
        if not _post(address, message, log):
            return
    log.error("this alert was not posted: %s", message["text"])


def _post(address: str, message: dict[str, str], log: logging.Logger) -> bool:
    """Logs whether the message arrived, but not the address, which is a secret. Returns whether it may arrive
    later.
    """
    try:
        request = urllib.request.Request(
            address, json.dumps(message).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            log.info(f"posted to the webhook, which answered {answer.status}")
    except urllib.error.HTTPError as error:
        log.warning(f"the webhook in {WEBHOOK_VARIABLE} answered {error.code}")
        return error.code >= 500 or error.code in TRY_AGAIN  # others: the address is wrong
    except (OSError, ValueError, HTTPException) as error:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        log.warning(f"the webhook in {WEBHOOK_VARIABLE} cannot be reached: {_why_unreached(cause)}")
        return not isinstance(cause, NO_ADDRESS)
    return False


def _why_unreached(cause: BaseException | str) -> str:
    """The words of the operating system, which hold no address, or else the kind of the error."""
    if isinstance(cause, TimeoutError):
        return f"no answer within {TIMEOUT_SECONDS:.0f} seconds"
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    if isinstance(cause, NO_ADDRESS):
        return "it is not an address that can be opened, such as https://host/path"
    return type(cause).__name__
