"""What `decide --run` trains before it decides."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from pipeline.cli import main, variants
from pipeline.recipe.loading import RECIPE_VARIABLE
from pipeline.reports import variant_arms
from pipeline.steps.model import benchmark
from pipeline.steps.training import initial_weights, plan
from tests.integration.project import TRAINING
from tests.pipeline.reports.test_variant_arms import TEXT, arm, named
from trainer.system.paths import STORE_VARIABLE


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs that are started for a recipe with a variant and an evaluation text."""
    (tmp_path / "notes.txt").write_text("A note about ships. " * 50)
    source = {"kind": "files", "paths": ["notes.txt"]}
    recipe = {
        "name": "mine",
        "corpora": [{"name": "notes", "source": source}],
        "training": TRAINING,
        "evaluation": {"texts": [{"name": "held", "source": source}]},
        "variants": {"strict": {"quality": {"min_words": 60}}},
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    monkeypatch.setenv(RECIPE_VARIABLE, str(tmp_path / "recipe.yaml"))
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "store"))
    started: list[str] = []
    monkeypatch.setattr(variants, "run_jobs", lambda names, *_: started.extend(names))
    return started


def test_where_nothing_was_scored_yet_all_seeds_are_trained(trained: list[str]) -> None:
    main(["decide", "--run"])
    assert trained == ["base", "strict"]


def test_where_training_leads_to_no_verdict_nothing_is_trained(
    trained: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    losing = replace(arm("base", 2, seeds=0), missing=[], lost="25.0% of 'held'")
    monkeypatch.setattr(variant_arms, "measures", lambda _: [TEXT])
    monkeypatch.setattr(variant_arms, "arms", lambda *_: named(losing, arm("strict", 2, seeds=2)))
    assert main(["decide", "--run"]) != 0
    assert "base: its tokenizer does not give back 25.0% of 'held'" in capsys.readouterr().err and not trained


def test_a_variant_whose_tokenizer_loses_text_is_named_and_the_others_are_judged(
    scored: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    losing = replace(arm("mild", 2, seeds=0), missing=[], lost="25.0% of 'held'")
    arms = named(arm("base", 2), arm("strict", 2.5), arm("half", 2.1, control="duplicates"), losing)
    monkeypatch.setattr(variant_arms, "arms", lambda *_: arms)
    assert main(["decide", "--run"]) == 0
    assert not scored
    said = " ".join(capsys.readouterr().out.split())
    assert "strict is worse than base" in said and "control half lost" in said
    assert "cannot tell mild from base: the tokenizer of mild does not give back 25.0% of 'held'" in said
    assert "Take a tokenizer that gives text back for mild." in said


def test_a_variant_whose_initial_weights_are_gone_is_named_and_the_others_are_judged(
    trained: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = yaml.safe_load((tmp_path / "recipe.yaml").read_text())
    recipe["variants"] |= {"tuned": {"training": {"pretrained": {"path": "gone"}}}}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    monkeypatch.setattr(benchmark, "of_recipe", lambda *_: [TEXT])
    shards_are_made = lambda _, recipe: plan.Settled(recipe, {}, initial_weights.located(recipe))  # noqa: E731
    monkeypatch.setattr(plan, "settled", shards_are_made)
    assert main(["decide"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "no verdict yet on strict against base" in said
    assert "cannot tell tuned from base: what was trained of tuned cannot be looked for (training." in said
    assert "does not hold *.safetensors files" in said and "Put the same files back" in said


@pytest.fixture
def scored(trained: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A recipe whose variant `strict` is much worse than the control, and the control than the recipe."""
    recipe = yaml.safe_load((tmp_path / "recipe.yaml").read_text())
    recipe["variants"] |= {"half": {"training": {"control": "duplicates"}}, "mild": {"quality": "docs"}}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    arms = named(
        arm("base", 2, seeds=2), arm("strict", 2.5), arm("half", 2.1, control="duplicates"), arm("mild", 2.4)
    )
    monkeypatch.setattr(variant_arms, "measures", lambda _: [TEXT])
    monkeypatch.setattr(variant_arms, "arms", lambda *_: arms)
    return trained


def test_a_control_is_judged_by_the_recipe_that_it_is_made_of(
    scored: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And not by a variant, which may be worse than any control."""
    assert main(["decide", "strict", "mild"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "mild is better than strict" in said
    assert "The negative control half has not been trained with 3 seeds yet." in said
    main(["decide", "strict", "mild", "--run"])
    assert scored == ["base.3"]


def test_once_a_source_has_changed_all_runs_are_started_again(
    scored: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else they would be compared with runs that read other text. Those that read it have nothing to do."""
    arms = variant_arms.arms({}, [])
    for name, content in (("base", "before"), ("strict", "after")):
        arms[name] = replace(arms[name], read=frozenset({("notes", "all", content)}))
    main(["decide", "base", "strict", "--run"])
    assert {"base", "strict", "half"} < {*scored} and "mild" not in scored


@pytest.mark.parametrize("difference", ["0", "-1", "nan", "inf"])
def test_a_difference_that_no_runs_could_show_is_refused(
    scored: list[str], capsys: pytest.CaptureFixture[str], difference: str
) -> None:
    assert main(["decide", f"--difference={difference}"]) == 2
    assert f"--difference {difference}: must be above 0" in capsys.readouterr().err
