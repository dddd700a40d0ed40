"""A recipe that was changed or broken while its run waited."""

import subprocess
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._grpc.types import ExecuteRunArgs

from pipeline.assets import graph
from pipeline.assets.operations import alerts
from pipeline.assets.operations.edited_recipe import RELOAD
from pipeline.assets.used_recipe import UsedRecipe
from tests.integration.project import ROOT, Project, make_project
from tests.integration.test_unattended import of_module, train_job


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
