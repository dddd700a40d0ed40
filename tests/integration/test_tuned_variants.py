"""Variants that differ in a section of `post_training`: what they share is made once, models are not."""

import json
from pathlib import Path

import dagster as dg
import pytest
import yaml

from pipeline.cli import main
from pipeline.steps.model import evaluate
from pipeline.steps.training import plan
from pipeline.store import keys
from pipeline.store.cleanup import gc
from tests.integration.project import Project, make_chat_project

HOT = {"post_training": {"sft": {"training": {"optimizer": {"lr": 1e-2}}}}}


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The recipe and a variant of it, whose section `sft` differs."""
    project = make_chat_project(tmp_path_factory.mktemp("tuned"))
    del project.recipe["post_training"]["dpo"]
    project.recipe["variants"] = {"hot": HOT}
    for job, arguments in (
        ("pretrain", ()),
        ("sft", ()),
        ("sft", ("--tags", json.dumps({"dagster/partition": "hot"}))),
    ):
        project.make(*arguments, job=job)
    return project


def number(project: Project, key: str) -> int:
    return len(list((project.home / "store" / key).glob("[!.]*/manifest.json")))


@pytest.mark.slow
def test_a_variant_of_a_section_shares_all_but_its_own_training(tuned: Project) -> None:
    base, hot = tuned.variant_store("sft"), tuned.variant_store("hot/sft")
    for shared in (keys.DEDUP, keys.TOKENIZER, keys.token_shards("sft_words"), keys.BASE_MODEL):
        assert base.current(shared).path == hot.current(shared).path
    assert base.current(keys.EXPORTED_MODEL).data_version != hot.current(keys.EXPORTED_MODEL).data_version
    # the pretraining and two tunings
    assert [number(tuned, key) for key in (keys.PRETRAINED_MODEL, keys.EXPORTED_MODEL)] == [3, 3]
    assert number(tuned, keys.token_shards("sft_words")) == 1
    with dg.DagsterInstance.from_config(str(tuned.home)) as instance:
        made = instance.get_materialized_partitions(dg.AssetKey(["sft", keys.PRETRAINED_MODEL]))
        assert made == {"base", "hot"}
        assert instance.get_materialized_partitions(dg.AssetKey(["sft", "dedup"])) == set()
        name = plan.final_checkpoint(base.current(keys.PRETRAINED_MODEL))
        last = dg.AssetRecordsFilter(dg.AssetKey("checkpoint"), asset_partitions=[name])
        (saved, *_) = instance.fetch_materializations(last, limit=1).records
        assert saved.asset_materialization and saved.asset_materialization.tags
        shards = keys.token_shards("sft_words")  # the asset is that of the section
        read = saved.asset_materialization.tags[f"dagster/input_data_version/sft/{shards}"]
        assert read == base.current(shards).data_version
    assert gc.find(base) == []


@pytest.mark.slow
def test_commands_take_the_section_of_a_variant_by_its_name(
    tuned: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned.enter(monkeypatch)

    def told(*arguments: str) -> str:
        assert main(arguments) == 0
        return capsys.readouterr().out

    exported = str(tuned.variant_store("hot/sft").current(keys.EXPORTED_MODEL).path)
    assert exported in told("summary", "--variant", "hot/sft")
    assert exported not in told("summary", "--variant", "sft")
    assert ", variant hot/sft" in told("lineage", "--variant", "hot/sft")
    assert "everything before sft/pretrained_model" in told("variants")
    assert [one["name"] for one in json.loads(told("compare", "--json"))] == ["base"]
    base, hot = json.loads(told("compare", "--section", "sft", "--json"))
    assert (base["name"], hot["name"], hot["done"]) == ("base", "hot", 1)
    assert hot["settings"] == "post_training.sft.training.optimizer.lr 0.01"
    assert hot["held_out"] == base["held_out"] and hot["loss"] != base["loss"]
    assert main(("compare", "hot")) == 2
    assert "hot: makes the same as another variant in the pretraining" in capsys.readouterr().err
    told("reproduce", "--variant", "hot/sft", "-o", str(tmp_path / "again"))
    pinned = yaml.safe_load((tmp_path / "again" / "recipe.yaml").read_text())
    assert pinned["post_training"]["sft"]["training"]["optimizer"]["lr"] == 1e-2


@pytest.mark.slow
def test_tunings_are_compared_on_held_out_answers_and_missing_seeds_are_trained(
    tuned: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = tuned.copied(tmp_path / "project")
    project.enter(monkeypatch)
    assert main(("decide", "--section", "sft", "base", "hot")) == 0
    assert "needs 3 seeds of each, 1 has ended" in " ".join(capsys.readouterr().out.split())

    project.recipe["seeds"] = 2
    project.enter(monkeypatch)
    assert main(("decide", "--section", "sft", "--run", "base", "hot")) == 0
    capsys.readouterr()
    assert main(("decide", "--section", "sft", "--json")) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["seeds"], list(found["rows"])) == (2, ["sft_words.answers"])
    assert found["total"] == found["rows"]["sft_words.answers"]
    bits = [
        evaluate.read(project.variant_store(name).current(keys.EVALUATION))["bits_per_byte"]
        for name in ("sft", "base.2/sft", "hot/sft", "hot.2/sft")
    ]
    assert found["total"]["value"] == pytest.approx(sum(bits[2:]) / 2 - sum(bits[:2]) / 2, abs=2e-3)
    # one more pretraining, which both share, and two more tunings
    assert number(project, keys.PRETRAINED_MODEL) == 6


@pytest.mark.slow
def test_a_variant_that_is_gone_keeps_its_model_and_what_that_was_made_of(
    tuned: Project, tmp_path: Path
) -> None:
    project = tuned.copied(tmp_path / "project")
    recorded = {path.name for path in (project.home / "store" / "recipes").iterdir()}
    assert len([name for name in recorded if name.startswith("tiny-hot-sft-")]) == 1
    del project.recipe["variants"]
    assert gc.find(project.variant_store("sft")) == []
