"""What lm-evaluation-harness measured of a model is shown wherever its benchmarks are."""

from pathlib import Path

import pytest

from pipeline.cli import main
from pipeline.recipe.loading import load_recipe
from pipeline.reports import comparison, runs_table, variant_arms
from pipeline.store import keys
from pipeline.store.variant_names import BASE
from tests.integration.project import Project
from tests.pipeline.steps.model import lm_eval

pytestmark = pytest.mark.slow


def test_imported_scores_are_on_the_card_the_leaderboard_and_in_decide(
    finished: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    project = finished.copied(tmp_path / "project")
    project.enter(monkeypatch)
    weights = project.store.current(keys.EXPORTED_MODEL).path
    for right in (1, 3):  # the newer results count
        results = lm_eval.write(tmp_path / str(right), str(weights), right)
        assert main(["benchmark", "--import", str(results)]) == 0
    said = capfd.readouterr()
    assert "| lm-eval:own" not in (weights / "README.md").read_text()
    card = project.store.current(keys.EXPORTED_MODEL).path / "README.md"
    assert str(card) in said.err and "| lm-eval:own | 4 | 75.0 (30.1-95.4) | **50.0 " in card.read_text()
    assert main(["summary"]) == 0 and "lm-eval:own" in capfd.readouterr().out

    recipes = {BASE: load_recipe(project.write_recipe())}
    runs = comparison.readable(project.store)
    (outcome,) = comparison.leaderboard(project.store, runs, recipes, {})
    (row,) = runs_table.rows([outcome])
    assert row["lm-eval:own"].startswith("50.0 ")
    compared_on, arms = variant_arms.evidence(recipes)
    assert [one.name for one in compared_on] == ["lm-eval:own"] and arms[BASE].ended == [BASE]
    assert arms[BASE].wrong["lm-eval:own"].tolist() == [[0, 0, 0, 1]]

    status, said = project.run()  # which makes nothing again
    assert status == 0 and project.store.current(keys.EXPORTED_MODEL).path == card.parent


def test_results_of_a_checkpoint_are_kept_with_it_and_those_of_another_model_are_not(
    finished: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    project = finished.copied(tmp_path / "project")
    project.enter(monkeypatch)
    first = min((project.home / "store/runs").glob("*/checkpoints/step-*"))
    name = f"{first.parents[1].name[:8]}-{first.name.removeprefix('step-')}"
    project.make("--tags", f'{{"dagster/partition": "{name}"}}', job="evaluate")
    results = lm_eval.write(tmp_path, str(first / "hf"))
    capfd.readouterr()
    assert main(["benchmark", "--import", str(results)]) == 2
    assert f"another model, {first / 'hf'}, not of" in capfd.readouterr().err
    assert main(["benchmark", "--import", str(results), "--model", name]) == 0
    assert main(["summary", "--model", name]) == 0
    assert "lm-eval:own" in capfd.readouterr().out.partition("Benchmarks")[2]
    assert main(["summary"]) == 0 and "lm-eval:own" not in capfd.readouterr().out
