"""What `decide --run` trains before it decides."""

from pathlib import Path

import pytest
import yaml

from pipeline.cli import main, variants
from pipeline.recipe.loading import RECIPE_VARIABLE
from pipeline.reports import variant_arms
from pipeline.reports.variant_arms import DecideError
from tests.integration.project import TRAINING
from trainer.system.history import STORE_VARIABLE


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
    def refused(*_: object) -> None:
        raise DecideError("strict: its tokenizer does not give back 25% of 'held'")

    monkeypatch.setattr(variant_arms, "measures", lambda _: [])
    monkeypatch.setattr(variant_arms, "arms", refused)
    assert main(["decide", "--run"]) != 0
    assert "does not give back" in capsys.readouterr().err and not trained
