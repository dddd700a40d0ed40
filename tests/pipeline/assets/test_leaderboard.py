"""What the UI shows of variants and runs side by side."""

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from pipeline.assets import leaderboard
from pipeline.assets.used_recipe import OWN
from pipeline.cli import main
from pipeline.recipe.loading import RECIPE_VARIABLE, load_recipe
from pipeline.store import keys
from pipeline.store.engines.local import LocalEngine
from pipeline.store.store import Store, default_store
from tests.integration.project import TRAINING
from tests.pipeline.cli.test_compare import changed, write_run
from tests.pipeline.steps import make
from trainer.system.paths import STORE_VARIABLE

RECIPE: dict[str, Any] = {
    "name": "mine",
    "corpora": [{"name": "docs", "source": {"kind": "files", "paths": ["docs.jsonl"]}}],
    "quality": "docs",
    "training": TRAINING,
}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv(RECIPE_VARIABLE, str(tmp_path / "recipe.yaml"))
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "store"))
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(RECIPE))
    return default_store()


def entries(instance: dg.DagsterInstance) -> list[dict[str, Any]]:
    """The newest first."""
    found = instance.fetch_materializations(OWN.asset(leaderboard.KEY), limit=99).records
    made = [one.asset_materialization for one in found]
    return [{name: data.value for name, data in one.metadata.items()} for one in made if one]


def trained(store: Store, digit: str, steps: int = 1, **training: Any) -> Path:
    run = store.root / "runs" / (digit * 16)
    config = changed("training", **training) | {"name": f"mine {digit * 8}"}
    write_run(run, config | {"lineage": {"recipe": {"name": "mine"}}}, [3.0] * steps)
    return run


def test_an_entry_is_added_when_something_has_changed_and_only_then(store: Store) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        leaderboard.update(instance, store, OWN)
        assert entries(instance)[0]["leaderboard"] == "no model has been trained yet"
        run = trained(store, "a")
        for _ in range(2):
            leaderboard.update(instance, store, OWN)
        shown, _ = entries(instance)
        assert "| mine aaaaaaaa | 1.5000 |" in shown["1-1"]
        assert "data:image/png" in shown["curves"]
        assert len(shown["loss by tokens"]) < 1000  # shown without a click
        saved = run / "checkpoints/step-00000001/manifest.json"
        saved.parent.mkdir(parents=True)
        saved.touch()
        names = ["aaaaaaaa-00000001", "aaaaaaaa-00000002"]
        instance.add_dynamic_partitions("checkpoints", names)
        instance.report_runless_asset_event(
            dg.AssetMaterialization(OWN.asset(keys.CHECKPOINT_EVALUATION), partition=names[1])
        )
        leaderboard.update(instance, store, OWN)
        shown, *_ = entries(instance)
        page = "/assets/checkpoint?view=partitions&partition"
        assert [line.strip() for line in shown["checkpoints"].splitlines()[2:]] == [
            f"| [{names[0]}]({page}={names[0]}) | 3.1000 | kept | no |",
            f"| [{names[1]}]({page}={names[1]}) | - | deleted | yes |",
        ]
        link = "[mine aaaaaaaa](/assets/checkpoint?view=partitions&partition=aaaaaaaa-00000001)"
        assert link in shown["1-1"] and link in shown["all runs, all columns"]
        assert main(["keep", names[0]]) == 0
        leaderboard.update(instance, store, OWN)
        assert "| pinned | no |" in entries(instance)[0]["checkpoints"]
        saved.unlink()
        leaderboard.update(instance, store, OWN)
        assert entries(instance)[0]["all runs, all columns"].rstrip().endswith("| none |")
        assert (
            f"[{names[0]}]({page}={names[0]}) | 3.1000 | deleted | no |"
            in entries(instance)[0]["checkpoints"]
        )
        assert len(entries(instance)) == 5


def test_a_recipe_that_is_broken_meanwhile_fails_no_run(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trained(store, "a")
    with dg.DagsterInstance.ephemeral() as instance:
        for text in ("name: [", None):
            (tmp_path / "recipe.yaml").write_text(text) if text else (tmp_path / "recipe.yaml").unlink()
            leaderboard.update(instance, store, OWN)
        assert not entries(instance) and caplog.text.count("was not brought up to date") == 2


def test_a_training_adds_an_entry_for_each_tenth_that_its_metrics_have_grown(store: Store) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        for steps in range(1, 31):
            trained(store, "a", steps)
            leaderboard.update(instance, store, OWN)
        assert 15 < len(entries(instance)) < 25


def test_variants_stand_above_other_runs_before_any_is_trained(store: Store, tmp_path: Path) -> None:
    trained(store, "a")
    written = RECIPE | {"variants": {"strict": {"quality": "gopher"}}}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(written))
    with dg.DagsterInstance.ephemeral() as instance:
        leaderboard.update(instance, store, OWN)
        lines = entries(instance)[0]["1-3"].splitlines()[2:]
    assert [line.split("|")[1].strip() for line in lines] == ["base", "strict", "mine aaaaaaaa"]


def test_a_variant_whose_initial_weights_are_gone_does_not_hide_the_others(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tuned = {"tuned": {"training": {"pretrained": {"path": "gone"}}}}
    settings = RECIPE | {"variants": tuned, "quality": "none", "tokenizer": {"vocab_size": 290}}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(settings))
    rows = [json.dumps({"text": f"{number} is a number. " * 20}) for number in range(40)]
    (tmp_path / "docs.jsonl").write_text("\n".join(rows))
    make.data(store, LocalEngine(1), load_recipe(tmp_path / "recipe.yaml"))
    trained(store, "a")
    with dg.DagsterInstance.ephemeral() as instance:
        leaderboard.update(instance, store, OWN)
        (shown,) = entries(instance)
    assert "| mine aaaaaaaa |" in shown["1-3"] and "| tuned |" in shown["1-3"]
    assert "the run of tuned cannot be looked for: training.pretrained.path: " in caplog.text


def test_many_runs_are_shown_without_a_click(store: Store) -> None:
    for digit in "0123456789abcdef":
        saved = trained(store, digit) / "checkpoints/step-00000001/manifest.json"
        saved.parent.mkdir(parents=True)
        saved.touch()
    broken = store.root / "runs" / ("0b" * 8) / "config.yaml"
    broken.parent.mkdir()
    broken.touch()
    with dg.DagsterInstance.ephemeral() as instance:
        leaderboard.update(instance, store, OWN)
        (shown,) = entries(instance)
    tables = {name: text for name, text in shown.items() if name[0].isdigit()}
    assert min(tables).startswith("1-") and [*tables][-1].endswith("-16") and len(tables) > 1
    assert all(len(text) < 1000 for text in tables.values())
    assert sum(text.count("\n") - 1 for text in tables.values()) == 16
    assert len(shown["all runs, all columns"]) >= 1000  # else it would be shown, and cut
