"""Runs that end while nobody looks are told to a webhook."""

import json
import logging
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import dagster as dg
import pytest

from pipeline.assets.asset import user_errors_as_failures
from pipeline.assets.operations import alerts
from pipeline.assets.operations.alerts import WEBHOOK_VARIABLE
from pipeline.assets.operations.resources import PipelineResources
from pipeline.store.errors import PipelineError
from tests.integration.project import ROOT, make_project
from tests.integration.test_unattended import disk_nearly_full, run_failed, training_finished
from tests.servers import Handler, Server, serving


def failed_run(instance: dg.DagsterInstance) -> dg.RunFailureSensorContext:
    """What the sensor is given after a run in which one asset failed."""

    @dg.asset
    @user_errors_as_failures
    def shards() -> None:
        raise PipelineError("topics.jsonl, row 7: no field 'text'")

    @dg.asset(deps=[shards])
    def model() -> None: ...

    result = dg.materialize([shards, model], instance=instance, raise_on_error=False)
    event = next(event for event in result.all_events if event.is_run_failure)
    context = dg.build_run_status_sensor_context("run_failed", event, instance, result.dagster_run)
    return context.for_run_failure()


def test_a_failed_run_is_told_to_the_webhook_with_its_reason(
    webhook: tuple[str, list[dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, received = webhook
    monkeypatch.setenv(WEBHOOK_VARIABLE, address)
    with dg.DagsterInstance.ephemeral() as instance:
        context = failed_run(instance)
        run_failed(context)
    (message,) = received
    assert (
        message["reason"] == "shards: topics.jsonl, row 7: no field 'text'"
        and message["run_id"] == context.dagster_run.run_id
    )
    # the form that Slack and others take
    assert message["text"].endswith(f"failed: {message['reason']}")


def test_a_run_that_failed_a_check_is_told_with_what_the_check_found() -> None:
    said = "quality rejects 75 of 78 documents (96.2%), the limit is 50.0%"
    found = {"enough_is_kept": (False, said), "intact": (True, "all is well"), "short": (False, "a warning")}
    specs = [dg.AssetCheckSpec(name, asset="quality", blocking=name != "short") for name in found]

    @dg.asset(check_specs=specs)
    def quality() -> Iterator[dg.MaterializeResult]:
        results = [
            dg.AssetCheckResult(
                check_name=name,
                passed=passed,
                description=text,
                severity=dg.AssetCheckSeverity.WARN if name == "short" else dg.AssetCheckSeverity.ERROR,
            )
            for name, (passed, text) in found.items()
        ]
        yield dg.MaterializeResult(check_results=results)

    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize([quality], instance=instance, raise_on_error=False)
        failure = next(event for event in result.all_events if event.is_run_failure)
        context = dg.build_run_status_sensor_context("run_failed", failure, instance, result.dagster_run)
        assert alerts.reason(context.for_run_failure()) == f"quality: {said}"


@pytest.mark.parametrize("section", [[], ["sft"], ["dpo"]])
def test_a_finished_training_is_told_to_the_webhook_with_its_figures_and_a_reused_one_is_not(
    section: list[str], webhook: tuple[str, list[dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, received = webhook
    monkeypatch.setenv(WEBHOOK_VARIABLE, address)
    figures = {"validation loss": 3.25, "bits per byte": 1.5, "tokens": 16384, "hours": 0.5, "tokens/s": 9}

    @dg.asset(key=[*section, "pretrained_model"], config_schema={"reused": bool})
    def pretrained_model(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        named = {"training run": "mine seed 7 0123abcd"}
        return dg.MaterializeResult(metadata={**figures, **named, "cost USD": 1.25, **context.op_config})

    succeeded = dg.DagsterEventType.RUN_SUCCESS
    with dg.DagsterInstance.ephemeral() as instance:
        for reused in (False, True):
            config = {"ops": {"__".join(pretrained_model.key.path): {"config": {"reused": reused}}}}
            tags = {"dagster/partition": "strict.2"}
            result = dg.materialize([pretrained_model], instance=instance, run_config=config, tags=tags)
            event = next(event for event in result.all_events if event.event_type is succeeded)
            context = dg.build_run_status_sensor_context(
                "training_finished", event, instance, result.dagster_run
            )
            training_finished(context)
    (message,) = received
    told = "validation loss 3.2500, 1.5000 bits per byte, 16,384 tokens in 30.0 min, 9 tokens/s, 1.25 USD"
    assert message["text"].endswith(f" trained mine seed 7 0123abcd: {told}")
    # "Materialize all" starts a run without a job, which Dagster gives a name such as `__ASSET_JOB`
    assert message["text"].startswith("Groundwork: a run of chosen assets of strict.2 (")


def test_a_disk_that_becomes_full_is_one_alert(
    webhook: tuple[str, list[dict[str, str]]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_project(tmp_path).enter(monkeypatch)
    address, received = webhook
    monkeypatch.setenv(WEBHOOK_VARIABLE, address)
    gigabytes_free = [300, 4, 4, 300, 4]
    usage = shutil.disk_usage(tmp_path)
    with dg.DagsterInstance.ephemeral() as instance:
        cursor = ""
        for gigabytes in gigabytes_free:
            free = usage._replace(total=1000 * 10**9, free=gigabytes * 10**9)
            monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: free)
            with dg.build_sensor_context(
                instance=instance, cursor=cursor, resources={"workshop": PipelineResources()}
            ) as context:
                disk_nearly_full(context)
                cursor = context.cursor or ""
    assert len(received) == 2  # one each time it became full
    assert f"the disk of {tmp_path}/home/store is nearly full, 4.0 of 1,000 GB" in received[0]["text"]


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("{server}/refuse/s3cret", "answered 500"),
        ("http://127.0.0.1:9/s3cret", "Connection refused"),
        ("http://host.invalid/s3cret", "cannot be reached: "),
        ("http://127.0.0.1:s3cret/", "it is not an address that can be opened"),
        ("hooks.example.org/s3cret", "it is not an address that can be opened"),
        ("ftps://hooks.example.org/s3cret", "it is not an address that can be opened"),
    ],
)
def test_a_webhook_that_does_not_answer_is_named_with_the_reason_and_without_its_secret(
    webhook: tuple[str, list[dict[str, str]]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    address: str,
    why: str,
) -> None:
    monkeypatch.setenv(WEBHOOK_VARIABLE, address.format(server=webhook[0]))
    monkeypatch.setattr(alerts, "RETRY_AFTER_SECONDS", (1e6,))  # not into the log of another test
    with dg.DagsterInstance.ephemeral() as instance:
        run_failed(failed_run(instance))
    said = "".join(capsys.readouterr())
    assert "the webhook in" in said and "row 7" in said and "s3cret" not in said
    assert why in said and "gaierror" not in said


@pytest.mark.parametrize(
    ("answers", "asked"),
    [([503, 429, 204], 3), ([404], 1), ([500] * 9, 4)],  # it comes back, it is another address, it stays away
)
def test_an_alert_is_posted_again_until_the_webhook_takes_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    answers: list[int],
    asked: int,
) -> None:
    received: list[str] = []

    class Restarting(Handler):
        def asked(self) -> None:
            received.append(json.loads(self.sent())["text"])
            self.answer(answers[len(received) - 1])

    monkeypatch.setattr(alerts, "RETRY_AFTER_SECONDS", (0.05,) * 3)
    with serving(Server(Restarting)) as server:
        monkeypatch.setenv(WEBHOOK_VARIABLE, f"{server.url}/s3cret")
        before = set(threading.enumerate())
        with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
            alerts.send("the run failed", logging.getLogger("sensor"), instance)
            most = time.monotonic() + 20
            while time.monotonic() < most and set(threading.enumerate()) - before:
                time.sleep(0.05)
    assert not [*tmp_path.rglob("waiting_alerts/*")]
    assert received == ["Groundwork: the run failed"] * asked
    assert ("this alert was not posted: Groundwork: the run failed" in caplog.text) is (answers[-1] == 500)
    assert "s3cret" not in caplog.text


def test_an_alert_that_waits_when_its_process_is_killed_is_posted_once_by_the_next(
    webhook: tuple[str, list[dict[str, str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, received = webhook
    make_project(tmp_path).enter(monkeypatch)
    code = f"""
import logging, os, time, dagster as dg
from pipeline.assets.operations import alerts
os.environ[alerts.WEBHOOK_VARIABLE] = "http://127.0.0.1:9/"
with dg.DagsterInstance.from_config({str(tmp_path / "home")!r}) as instance:
    alerts.send("the run failed", logging.getLogger(), instance, reason="no field 'text'")
    print("waits", flush=True)
    time.sleep(600)
"""
    monkeypatch.setenv(WEBHOOK_VARIABLE, address)

    def tick(instance: dg.DagsterInstance) -> None:
        with dg.build_sensor_context(
            instance=instance, resources={"workshop": PipelineResources()}
        ) as context:
            disk_nearly_full(context)

    with (
        subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as sender,
        dg.DagsterInstance.from_config(str(tmp_path / "home")) as instance,
    ):
        assert sender.stdout and sender.stdout.readline() == "waits\n"
        tick(instance)
        assert received == []  # its own process still posts it
        sender.kill()
        sender.wait()
        tick(instance)
        tick(instance)
    assert received == [{"text": "Groundwork: the run failed", "reason": "no field 'text'"}]


def test_a_webhook_whose_answer_never_ends_does_not_hold_the_sensor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Dripping(Handler):
        def asked(self) -> None:
            with suppress(OSError):
                for letter in b"HTTP/1.1 200 OK\r\nX: " + b"a" * 300:
                    self.wfile.write(bytes([letter]))
                    time.sleep(0.05)

    monkeypatch.setattr(alerts, "TIMEOUT_SECONDS", 0.3)
    with serving(Server(Dripping)) as server:
        monkeypatch.setenv(WEBHOOK_VARIABLE, f"{server.url}/s3cret")
        began = time.monotonic()
        with dg.DagsterInstance.ephemeral() as instance:
            run_failed(failed_run(instance))
        assert time.monotonic() - began < 10
    said = "".join(capsys.readouterr())
    assert "answers too slowly" in said and "s3cret" not in said
