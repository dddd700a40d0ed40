"""What happens when nobody looks: runs fail and somebody is told, processes are killed and do not block the
next, checkpoints are evaluated.
"""

import datetime
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.code_pointer import CodePointer
from dagster._core.origin import JobPythonOrigin, RepositoryPythonOrigin
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._utils import get_run_crash_explanation

from pipeline.assets.operations import alerts, orphaned_runs
from pipeline.assets.operations.resources import TRAINING_TAG, PipelineResources
from pipeline.assets.operations.sensors import alert_sensors
from pipeline.assets.used_recipe import OWN
from tests.integration.project import ROOT, Project
from tests.pipeline.assets.test_launchpad import opened

run_failed, training_finished, disk_nearly_full = alert_sensors(OWN)


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
