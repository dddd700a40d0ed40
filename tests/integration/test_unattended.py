"""What happens when nobody looks: runs fail and somebody is told, processes are killed and do not block the
next, checkpoints are evaluated.
"""

import datetime
import importlib
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
from typing import Any

import dagster as dg
import pytest
from dagster._core.code_pointer import CodePointer
from dagster._core.origin import JobPythonOrigin, RepositoryPythonOrigin
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._grpc.types import ExecuteRunArgs
from dagster._utils import get_run_crash_explanation

from pipeline.assets import graph
from pipeline.assets.asset import user_errors_as_failures
from pipeline.assets.operations import alerts, orphaned_runs
from pipeline.assets.operations.alerts import WEBHOOK_VARIABLE
from pipeline.assets.operations.edited_recipe import RELOAD
from pipeline.assets.operations.resources import TRAINING_TAG, PipelineResources
from pipeline.assets.operations.sensors import alert_sensors
from pipeline.assets.used_recipe import OWN, UsedRecipe
from pipeline.store.errors import PipelineError
from tests.integration.project import ROOT, Project, make_project
from tests.pipeline.assets.test_launchpad import opened
from tests.servers import Handler, Server, serving

run_failed, training_finished, disk_nearly_full = alert_sensors(OWN)


@pytest.fixture
def definitions(finished: Project, monkeypatch: pytest.MonkeyPatch) -> dg.Definitions:
    finished.enter(monkeypatch)
    return importlib.reload(importlib.import_module("pipeline.definitions")).defs


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


def train_job() -> dg.JobDefinition:
    """A job of a single asset."""

    @dg.asset
    def model() -> None: ...

    return dg.Definitions(assets=[model], jobs=[dg.define_asset_job("train", [model])]).resolve_job_def(
        "train"
    )


def test_a_killed_run_is_found_by_the_next_and_gives_back_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dagster.yaml").write_text((ROOT / "dagster_home" / "dagster.yaml").read_text())
    code = f"""
import time, dagster as dg
from pipeline.assets.operations import orphaned_runs
from pipeline.assets.used_recipe import OWN
with dg.DagsterInstance.from_config({str(tmp_path)!r}) as instance:
    (run,) = instance.get_runs()
    orphaned_runs.claim(instance, run, OWN)
    instance.event_log_storage.claim_concurrency_slot("gpu", run.run_id, "model")
    print("claimed", flush=True)
    time.sleep(60)
"""
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        job = train_job()
        location = RegisteredCodeLocationOrigin("pipeline.definitions")
        from_ui = RemoteJobOrigin(RemoteRepositoryOrigin(location, "__repository__"), "train")
        run = instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED, remote_job_origin=from_ui)
        instance.event_log_storage.initialize_concurrency_limit_to_default("gpu")
        with subprocess.Popen(
            [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True
        ) as holder:
            assert holder.stdout and holder.stdout.readline() == "claimed\n"
            assert orphaned_runs.report(instance) == []  # it lives
            waiting = instance.create_run_for_job(job).run_id
            assert not instance.event_log_storage.claim_concurrency_slot("gpu", waiting, "model").is_claimed
            holder.kill()
        assert orphaned_runs.report(instance) == [run.run_id]
        lost = instance.get_run_by_id(run.run_id)
        assert lost and lost.status is dg.DagsterRunStatus.FAILURE
        (failed,) = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.RUN_FAILURE)
        context = dg.build_run_status_sensor_context("run_failed", failed.get_dagster_event(), instance, run)
        run_failed(context.for_run_failure())
        told = "failed, and is started again by itself: The process of this run is gone"
        assert told in "".join(capsys.readouterr())
        # One that is started again has the tags of the first until it names its own process.
        instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED, tags={**lost.tags})
        assert orphaned_runs.report(instance) == []
        assert instance.event_log_storage.claim_concurrency_slot("gpu", waiting, "model").is_claimed


@pytest.mark.parametrize("exit_code", [-9, 3])
def test_a_run_whose_end_dagsters_server_has_reported_first_gives_back_its_place_and_says_how_it_ended(
    exit_code: int,
) -> None:
    """The code server sees a killed run within seconds, and marks it as failed "from outside"."""
    code = "from pipeline.assets.operations import orphaned_runs; print(orphaned_runs.this_process())"
    ended = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True).strip()
    job = train_job()
    with dg.DagsterInstance.ephemeral() as instance:
        run, waiting = (
            instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED) for _ in range(2)
        )
        pool = instance.event_log_storage
        pool.set_concurrency_slots("gpu", 1)
        pool.claim_concurrency_slot("gpu", run.run_id, "model")
        instance.add_run_tags(run.run_id, {orphaned_runs.PROCESS_TAG: f"{run.run_id} {ended}"})
        told = get_run_crash_explanation(f"Run execution process for {run.run_id}", exit_code)
        instance.report_engine_event(told, run)
        failed = instance.report_run_failed(run)
        context = dg.build_run_status_sensor_context("run_failed", failed, instance, run).for_run_failure()
        how = "signal 9 (SIGKILL)" if exit_code < 0 else "code 3"
        assert alerts.reason(context).startswith("the process of this run ") and how in alerts.reason(context)
        assert not pool.claim_concurrency_slot("gpu", waiting.run_id, "model").is_claimed
        orphaned_runs.report(instance)
        assert pool.claim_concurrency_slot("gpu", waiting.run_id, "model").is_claimed


def test_a_run_whose_process_its_own_code_ended_names_the_stage_that_called_the_code(tmp_path: Path) -> None:
    """As a filter that calls `os._exit`, or a library that crashes."""
    code = f"""
import os, dagster as dg
from pipeline.assets.operations import orphaned_runs
from pipeline.assets.used_recipe import OWN

@dg.asset(key=["corpora", "notes", "scrubbed"])
def scrubbed() -> None: ...

@dg.asset(key=["corpora", "notes", "quality"], deps=[scrubbed])
def quality(context: dg.AssetExecutionContext) -> None:
    orphaned_runs.claim(context.instance, context.run, OWN)
    os._exit(0)

with dg.DagsterInstance.from_config({str(tmp_path)!r}) as instance:
    dg.materialize([scrubbed, quality], instance=instance)
"""
    (tmp_path / "dagster.yaml").write_text((ROOT / "dagster_home" / "dagster.yaml").read_text())
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        (run,) = orphaned_runs.report(instance)
        (failed,) = instance.all_logs(run, of_type=dg.DagsterEventType.RUN_FAILURE)
    assert "(it was at work on corpora/notes/quality)" in (failed.get_dagster_event().message or "")


def test_runs_in_the_queue_wait_while_the_daemon_starts_a_killed_code_server_again(tmp_path: Path) -> None:
    """By default Dagster marks every run in the queue as failed, and drops it."""
    (tmp_path / "dagster.yaml").write_text((ROOT / "dagster_home" / "dagster.yaml").read_text())
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        queue = instance.get_concurrency_config().run_queue_config
        assert queue and queue.max_concurrent_runs == 4  # the other settings of the queue still hold
        assert queue.max_user_code_failure_retries * queue.user_code_failure_retry_delay >= 120  # seconds


def test_the_page_of_a_job_lists_each_run_once_wherever_it_was_started(tmp_path: Path) -> None:
    job = train_job()
    location = RegisteredCodeLocationOrigin("pipeline.definitions")
    from_ui = RemoteJobOrigin(RemoteRepositoryOrigin(location, "__repository__"), "train")
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        runs = [
            instance.create_run_for_job(job, remote_job_origin=origin, job_code_origin=of_module("pipeline"))
            for origin in (from_ui, None)
        ]
        for run in runs:
            orphaned_runs.claim(instance, run, OWN)
        of_the_page = dg.RunsFilter(
            job_name="train", tags={".dagster/repository": "__repository__@pipeline.definitions"}
        )
        assert sorted(run.run_id for run in instance.get_runs(of_the_page)) == sorted(
            run.run_id for run in runs
        )
        # The first page of the UI shows the runs of each code location.
        found = [instance.get_run_by_id(run.run_id) for run in runs]
        assert [one and one.remote_job_origin for one in found] == [from_ui, from_ui]
        assert [one and one.tags.get("dagster/max_retries") for one in found] == [None, "0"]


def of_module(name: str, job: str = "train") -> JobPythonOrigin:
    """What Dagster notes on a run of this module's definitions."""
    return JobPythonOrigin(
        job, RepositoryPythonOrigin(sys.executable, CodePointer.from_module(name, "defs", None))
    )


def test_a_run_that_never_named_its_process_is_not_under_way_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = train_job()
    with dg.DagsterInstance.ephemeral() as instance:

        def under_way() -> set[str]:
            return {run.tags["of"] for run in orphaned_runs.under_way(instance)}

        for of, status in (
            ("a terminal", dg.DagsterRunStatus.STARTED),
            ("the daemon", dg.DagsterRunStatus.STARTING),
        ):
            instance.create_run_for_job(
                job, status=status, tags={"of": of}, job_code_origin=of_module("pipeline.definitions")
            )
        assert under_way() == {"a terminal", "the daemon"}
        monkeypatch.setattr(orphaned_runs, "CLAIMED_WITHIN", datetime.timedelta(0))
        assert under_way() == {"the daemon"}


def test_a_run_of_another_project_in_the_same_database_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    job = train_job()
    monkeypatch.setattr(orphaned_runs, "CLAIMED_WITHIN", datetime.timedelta(0))
    with dg.DagsterInstance.ephemeral() as instance:
        other = instance.create_run_for_job(
            job, status=dg.DagsterRunStatus.STARTED, job_code_origin=of_module("billing.definitions")
        )
        assert orphaned_runs.under_way(instance) == []
        found = instance.get_run_by_id(other.run_id)
        assert found and found.status is dg.DagsterRunStatus.STARTED


def test_a_run_that_was_stopped_and_then_killed_stays_stopped() -> None:
    job = train_job()
    code = """
import sys
from pipeline.assets.operations.orphaned_runs import this_process
print(f"{sys.argv[1]} {this_process()}")
"""
    with dg.DagsterInstance.ephemeral() as instance:
        run = instance.create_run_for_job(job, status=dg.DagsterRunStatus.CANCELING)
        tag = subprocess.run(
            [sys.executable, "-c", code, run.run_id], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
        ).stdout.strip()
        instance.add_run_tags(run.run_id, {orphaned_runs.PROCESS_TAG: tag})
        assert orphaned_runs.report(instance) == [run.run_id]
        found = instance.get_run_by_id(run.run_id)
        # one that failed is started again by the daemon
        assert found and found.status is dg.DagsterRunStatus.CANCELED


def test_trainings_and_evaluations_take_turns(definitions: dg.Definitions) -> None:
    for key in ("pretrained_model", "evaluation"):
        assert definitions.get_assets_def(key).op.pool == "gpu"
    assert definitions.resolve_job_def("evaluate").node_def_named("checkpoint_evaluation").pool == "gpu"  # type: ignore[union-attr]


def test_everything_that_materialize_all_makes_goes_into_one_run(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    # A partitioned asset among them would make it a backfill, and a fresh store has no partitions.
    assert not [key for key in graph.materializable_asset_keys if graph.get(key).is_partitioned]
    assert {dg.AssetKey("checkpoint"), dg.AssetKey("checkpoint_evaluation")} <= graph.external_asset_keys


def test_the_ui_says_which_recipe_and_store_it_shows_and_where_the_code_is(
    finished: Project, definitions: dg.Definitions
) -> None:
    recipe = str(finished.directory / "recipe.yaml")
    for job in ("pretrain", "corpus", "retokenize", "evaluate"):
        shown = definitions.resolve_job_def(job).description or ""
        assert recipe in shown and str(finished.store.root) in shown
    spec = definitions.get_assets_def("dedup").get_asset_spec(dg.AssetKey("dedup"))
    (place,) = spec.metadata["dagster/code_references"].code_references
    assert place.file_path == str(ROOT / "pipeline" / "steps" / "dedup" / "dedup.py")


def test_the_launchpad_starts_with_the_recipes_own_settings(
    finished: Project, definitions: dg.Definitions
) -> None:
    shown = opened(definitions.resolve_job_def("pretrain"))
    training = finished.recipe["training"]
    for name in ("max_tokens", "seq_len", "seed"):
        assert shown["training"][name] == training[name]
    assert shown["training"]["optimizer"]["lr"] == training["optimizer"]["lr"]
    assert shown["shards"] == finished.recipe["shards"]
    fields = PipelineResources.to_config_schema().as_field().config_type.fields["training"].config_type.fields  # type: ignore[attr-defined]
    assert all(
        field.description or name in ("model", "optimizer", "checkpoint", "evaluation")
        for name, field in fields.items()
    )


def test_bad_settings_are_refused_with_the_reason_before_there_is_a_run(
    finished: Project, definitions: dg.Definitions
) -> None:
    config = {"resources": {"workshop": {"config": {"training": {"max_tokens": 1000}}}}}
    problem = "training: max_tokens 1000 is not a multiple of global_batch_tokens 512; set it to 1024"
    said = f"^the settings of this run, from the Launchpad or -c: {problem}$"
    with dg.DagsterInstance.from_config(str(finished.home)) as instance:
        before = instance.get_runs_count()
        with pytest.raises(dg.DagsterError, match=said):
            definitions.resolve_job_def("pretrain").execute_in_process(run_config=config, instance=instance)
        assert instance.get_runs_count() == before


def test_a_run_whose_recipe_became_invalid_fails_with_the_reason_before_its_steps(
    finished: Project, definitions: dg.Definitions
) -> None:
    with dg.DagsterInstance.from_config(str(finished.home)) as instance:
        result = definitions.resolve_job_def("pretrain").execute_in_process(
            tags={"dagster/partition": "fast"}, instance=instance, raise_on_error=False
        )
        failure = next(event for event in result.all_events if event.is_run_failure)
        context = dg.build_run_status_sensor_context("run_failed", failure, instance, result.dagster_run)
        said = alerts.reason(context.for_run_failure())
    assert not [event for event in result.all_events if event.is_step_start]
    assert "no variant is named 'fast'" in said
    with dg.DagsterInstance.from_config(str(finished.home)) as instance:
        (run,) = instance.get_runs(limit=1)
        planned = instance.all_logs(run.run_id, dg.DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED)
        checks = [entry.dagster_event.asset_check_planned_data.asset_check_key for entry in planned]
        latest = instance.event_log_storage.get_latest_asset_check_execution_by_key(checks).values()
        assert len(latest) == len(checks) > 10
        assert {record.status.value for record in latest} <= {"SUCCEEDED", "FAILED"}  # as before this run


@pytest.mark.parametrize(
    ("was", "became", "problem"),
    [
        (
            "max_tokens: 16384",
            "max_tokens: 1000",
            "training: max_tokens 1000 is not a multiple of global_batch_tokens 512; set it to 1024",
        ),
        ("quality: docs", "quality: [docs", "not valid YAML: line 13: expected ',' or ']', but got ':'"),
        ("quality: docs", "quality: \udcff", "is not UTF-8 at byte 175: save it as UTF-8"),
    ],
)
def test_a_run_whose_recipe_was_broken_while_it_waited_is_told_with_the_mistake(
    was: str, became: str, problem: str, tmp_path: Path
) -> None:
    project = make_project(tmp_path)
    environment, recipe = project.environment(), tmp_path / "recipe.yaml"
    text = recipe.read_text().replace(str(tmp_path), "/data")
    assert was in text
    recipe.write_text(text.replace(was, became), encoding="utf-8", errors="surrogateescape")
    with dg.DagsterInstance.from_config(str(project.home)) as instance:
        run = instance.create_run_for_job(train_job(), job_code_origin=of_module("pipeline.definitions"))
        waited = ExecuteRunArgs(of_module("pipeline.definitions"), run.run_id, instance.get_ref())
        subprocess.run(waited.get_command_args(), env=environment, cwd=ROOT, check=True, capture_output=True)
        (failed,) = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.RUN_FAILURE)
        context = dg.build_run_status_sensor_context("run_failed", failed.get_dagster_event(), instance, run)
        said = alerts.reason(context.for_run_failure())
    assert said == f"{recipe}: {problem}"


def test_each_checkpoint_that_is_kept_is_evaluated_once(
    finished: Project, definitions: dg.Definitions
) -> None:
    def tick(instance: dg.DagsterInstance) -> dg.SensorResult:
        with dg.build_sensor_context(
            instance=instance, resources={"workshop": PipelineResources()}
        ) as context:
            result = definitions.resolve_sensor_def("checkpoint_saved")(context)
        assert isinstance(result, dg.SensorResult)
        return result

    with dg.DagsterInstance.from_config(str(finished.home)) as instance:
        from_a_terminal = instance.get_runs(
            dg.RunsFilter(job_name="pretrain", statuses=[dg.DagsterRunStatus.SUCCESS])
        )[0].job_code_origin
        everything = definitions.resolve_implicit_global_asset_job_def()
        for job, chosen in (
            (definitions.resolve_job_def("pretrain"), None),
            (everything, frozenset([dg.AssetKey("pretrained_model")])),
        ):
            started = {"status": dg.DagsterRunStatus.STARTED, "job_code_origin": from_a_terminal}
            training = instance.create_run_for_job(job, asset_selection=chosen, **started)
            assert "a training run is in progress" in str(tick(instance).skip_reason)
            instance.report_run_canceled(training)
        requests = tick(instance).run_requests or []
        keys = [request.partition_key for request in requests]
        assert [str(key)[-8:] for key in keys] == ["00000024", "00000032"]  # keep_last: 2
        final = str(keys[-1])
        assert (
            definitions.resolve_job_def("evaluate")
            .execute_in_process(instance=instance, partition_key=final)
            .success
        )
        assert [request.partition_key for request in tick(instance).run_requests or []] == keys[:-1]
        lost = instance.create_run_for_job(
            definitions.resolve_job_def("pretrain"), tags={TRAINING_TAG: f"mine {final[:8]}"}, **started
        )
        instance.report_run_failed(lost)  # and Dagster starts it again, with these checkpoints
        assert f"those of {final[:8]}, which was stopped, wait" in str(tick(instance).skip_reason)
        filters = dg.AssetRecordsFilter(dg.AssetKey("checkpoint_evaluation"), asset_partitions=[final])
        (record,) = instance.fetch_materializations(filters, limit=2).records
        evaluated = record.asset_materialization
        (entry,) = instance.fetch_materializations(
            dg.AssetRecordsFilter(dg.AssetKey("checkpoint"), asset_partitions=[final]), limit=2
        ).records
        saved = entry.asset_materialization
        assert evaluated and saved
        assert evaluated.metadata["bits per byte"].value == pytest.approx(
            saved.metadata["bits per byte"].value, abs=1e-4
        )


def run_planned_before(project: Project, recipe: dict[str, Any], chosen: list[str] | None = None) -> str:
    """What is told of a run that the UI planned when the recipe was that of `project`, and which begins when
    it is `recipe`.
    """
    environment, origin = project.environment(), of_module("pipeline.definitions", "retokenize")
    before = graph.definitions(UsedRecipe(project.write_recipe())).resolve_job_def("retokenize")
    location = RegisteredCodeLocationOrigin("pipeline.definitions")
    from_ui = RemoteJobOrigin(RemoteRepositoryOrigin(location, "__repository__"), "retokenize")
    keys = {dg.AssetKey(key.split("/")) for key in chosen} if chosen else None
    with dg.DagsterInstance.from_config(str(project.home)) as instance:
        run = instance.create_run_for_job(
            before.get_subset(asset_selection=keys) if keys else before,
            asset_selection=keys,
            remote_job_origin=from_ui,
            job_code_origin=origin,
        )
        project.recipe = recipe
        waited = ExecuteRunArgs(
            of_module("pipeline.definitions", "retokenize"), run.run_id, instance.get_ref()
        )
        environment = project.environment()
        subprocess.run(waited.get_command_args(), env=environment, cwd=ROOT, check=False, capture_output=True)
        (failed,) = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.RUN_FAILURE)
        ended = instance.get_run_by_id(run.run_id)
        assert ended and ended.tags["dagster/will_retry"] == "false"  # it would fail again, with an alert
        context = dg.build_run_status_sensor_context("run_failed", failed.get_dagster_event(), instance, run)
        return alerts.reason(context.for_run_failure())


@pytest.mark.parametrize("chosen", [None, pytest.param(["dedup"], marks=pytest.mark.slow)], ids=str)
def test_a_run_without_an_asset_that_the_recipe_got_meanwhile_says_how_the_ui_learns_of_it(
    chosen: list[str] | None, tmp_path: Path
) -> None:
    project = make_project(tmp_path)
    project.make(job="corpus")
    before = project.recipe
    more = {**before["corpora"][0], "name": "more"}
    said = run_planned_before(project, {**before, "corpora": [*before["corpora"], more]}, chosen)
    assert said.startswith("dedup: corpora/more/raw has not been made")
    assert "assets that the UI has not read yet (corpora/more/quality, corpora/more/raw, " in said
    assert said.endswith(RELOAD)


@pytest.mark.parametrize("chosen", [None, ["corpora/topics/edited"]], ids=str)
def test_a_run_of_assets_that_the_recipe_lost_meanwhile_says_how_the_ui_learns_of_it(
    chosen: list[str] | None, tmp_path: Path
) -> None:
    project = make_project(tmp_path)
    project.recipe = {**project.recipe, "edits": {"rules": ["policy"]}}
    without = {name: value for name, value in project.recipe.items() if name != "edits"}
    said = run_planned_before(project, without, chosen)
    assert "corpora/topics/edited" in said.replace("__", "/").replace("', '", "/")
    assert said.endswith(RELOAD)


def test_a_run_whose_recipe_was_broken_meanwhile_is_not_started_again(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    said = run_planned_before(project, {**project.recipe, "quality": "dokcs"})
    assert said.startswith(f"{project.directory / 'recipe.yaml'}: quality: unknown profile 'dokcs'")
