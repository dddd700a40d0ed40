"""Two recipes in a Dagster project of somebody else's, from their text to an asset of that project."""

from pathlib import Path

import dagster as dg
import pytest

from pipeline.recipe.loading import RECIPE_VARIABLE
from tests.foreign_project import ForeignProject, tiny

NAMES = ("mine", "other")


@pytest.mark.slow
def test_two_recipes_and_what_a_project_makes_of_their_models_are_made_in_one_run(tmp_path: Path) -> None:
    project = ForeignProject(tmp_path / "project")
    paths = {}
    for name in NAMES:
        recipe = tiny(tmp_path / "text", name)
        recipe["corpora"] = recipe["corpora"][:1]
        recipe["training"] |= {"max_tokens": 4096, "seed": len(name)}
        paths[name] = project.add(name, recipe, key_prefix=name)
    # the project's own executor, with a process for each step
    project.said("dagster", "asset", "materialize", "--select", "*", "-m", "their.definitions")
    with dg.DagsterInstance.from_config(str(project.home)) as instance:
        report = instance.get_latest_materialization_event(dg.AssetKey("model_report"))
        assert report is not None and report.asset_materialization is not None
        exported = {name: str(report.asset_materialization.metadata[name].value) for name in NAMES}
        saved = {name: instance.get_dynamic_partitions(f"{name}_checkpoints") for name in NAMES}
        (run,) = instance.get_runs()
        assert run.status is dg.DagsterRunStatus.SUCCESS and run.tags["groundwork/recipe"] in NAMES
        for name in NAMES:
            newest = dg.AssetRecordsFilter(dg.AssetKey([name, "checkpoint"]), [saved[name][-1]])
            entry = instance.fetch_materializations(newest, limit=1).records[0].asset_materialization
            command = f"{RECIPE_VARIABLE}={paths[name]} python -m pipeline lineage {saved[name][-1]}"
            assert entry is not None and entry.metadata["lineage"].value == command
            board = instance.get_latest_materialization_event(dg.AssetKey([name, "leaderboard"]))
            assert board is not None and board.asset_materialization is not None
            assert f"/assets/{name}/checkpoint?" in str(board.asset_materialization.metadata["1-2"].value)
    assert len(set(exported.values())) == 2 and not set(saved["mine"]) & set(saved["other"])
    for name in NAMES:
        assert (Path(exported[name]) / "model.safetensors").exists()
        lineage = project.said("pipeline", "lineage", saved[name][-1], **{RECIPE_VARIABLE: str(paths[name])})
        assert "topics" in lineage

    # the job of a recipe makes nothing again, and tells whose it is
    project.said("dagster", "job", "execute", "-m", "their.definitions", "-j", "other_corpus")
    with dg.DagsterInstance.from_config(str(project.home)) as instance:
        (run,) = instance.get_runs(dg.RunsFilter(job_name="other_corpus"))
        assert run.tags["groundwork/recipe"] == "other"
        made = instance.get_latest_materialization_event(dg.AssetKey(["other", "dedup"]))
        assert made is not None and made.run_id == run.run_id and made.asset_materialization is not None
        assert made.asset_materialization.metadata["reused"].value is True
