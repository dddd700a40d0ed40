"""Variants of a recipe in one store: what they share is made once, and none changes what another makes."""

import json
import os
import signal
import time
from collections import Counter
from pathlib import Path

import dagster as dg
import pytest
import yaml

from pipeline.cli import main
from pipeline.recipe.variants import load
from pipeline.steps.recipe_versions import RecipeVersions
from pipeline.store import keys
from pipeline.store.cleanup import gc
from pipeline.store.files import Files
from tests.integration.project import Project, make_project

STRICT, EVEN, FAST = (
    {"quality": {"min_words": 200}},
    {"mixture": {"temperature": 4.0}},
    {"training": {"optimizer": {"lr": 0.01}}},
)
# 2 profiles x 2 mixtures x 2 learning rates, of which one is the recipe itself
EIGHT = {
    "strict": STRICT,
    "even": EVEN,
    "fast": FAST,
    "strict_even": STRICT | EVEN,
    "strict_fast": STRICT | FAST,
    "even_fast": EVEN | FAST,
    "strict_even_fast": STRICT | EVEN | FAST,
}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = make_project(tmp_path)
    project.recipe["variants"] = {"strict": STRICT, "fast": FAST}
    return project


def partition(name: str) -> tuple[str, str]:
    return "--tags", json.dumps({"dagster/partition": name})


def versions(project: Project) -> set[str]:
    """Every version in the store, by key and name, without the evidence of dedup."""
    root = project.home / "store"
    found = {str(path.relative_to(root)) for path in gc.published(Files(root))}
    return {one for one in found if not one.startswith(keys.DEDUP_EVIDENCE)}


def used_by(project: Project, variant: str) -> set[str]:
    """The versions that a variant used last, without the evidence of dedup, which each run adds to."""
    records = Path(project.home / "store" / "recipes" / store_name(project, variant))
    paths = [path for path in records.rglob("[!.]*") if path.is_file() and path.name != "recipe.json"]
    found = {f"{path.relative_to(records)}/{path.read_text().strip()}" for path in paths}
    return {one for one in found if not one.startswith(keys.DEDUP_EVIDENCE)}


def store_name(project: Project, variant: str) -> str:
    return RecipeVersions(load(project.write_recipe(), variant)).name.directory


def bytes_of(project: Project, paths: set[str]) -> int:
    """The files of versions; one that two versions share by a hard link counts once."""
    return gc.bytes_below(project.home / "store" / path for path in paths)


def weights(project: Project, variant: str) -> str:
    exported = project.variant_store(variant).current(keys.EXPORTED_MODEL)
    return next(part.files["model.safetensors"].sha256 for part in exported.parts)


def partitions(project: Project, key: str) -> set[str]:
    with dg.DagsterInstance.from_config(str(project.home)) as instance:
        return instance.get_materialized_partitions(dg.AssetKey(key.split("/")))


def test_a_variant_shares_what_it_does_not_change_and_is_found_by_name(
    finished: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = finished.copied(tmp_path / "project")  # in which the recipe itself has run
    project.recipe["variants"] = {"strict": STRICT, "fast": FAST}
    project.make(*partition("fast"))
    project.enter(monkeypatch)

    def told(*arguments: str, status: int = 0) -> str:
        assert main(arguments) == status
        said = capsys.readouterr()
        return said.err if status else said.out

    base, fast = project.variant_store("base"), project.variant_store("fast")
    for key in (keys.DEDUP, keys.TOKENIZER, keys.token_shards("topics")):
        assert base.current(key).path == fast.current(key).path
    assert weights(project, "base") != weights(project, "fast")
    assert partitions(project, keys.PRETRAINED_MODEL) == {"fast"}
    assert partitions(project, keys.raw("topics")) == set()  # the same for all: no partitions
    assert gc.find(base) == []

    assert str(fast.current(keys.EXPORTED_MODEL).path) in told("summary", "--variant", "fast")
    assert ", variant fast" in told("lineage", "--variant", "fast")
    told("reproduce", "--variant", "fast", "-o", str(tmp_path / "again"))
    pinned = yaml.safe_load((tmp_path / "again" / "recipe.yaml").read_text())
    assert pinned["training"]["optimizer"]["lr"] == 0.01 and "variants" not in pinned

    found = {one["name"]: one for one in json.loads(told("compare", "--json"))}
    assert (found["base"]["done"], found["fast"]["done"], found["strict"]["tokens"]) == (1, 1, 0)
    assert found["fast"]["settings"] == "training.optimizer.lr 0.01"
    assert found["fast"]["held_out"] == found["base"]["held_out"]
    assert found["fast"]["loss"] != found["base"]["loss"] and found["fast"]["seconds"] > 0
    assert found["fast"]["curve"]["tokens"][-1] == found["fast"]["tokens"] == 16_384
    with dg.DagsterInstance.from_config(str(project.home)) as instance:
        event = instance.get_latest_materialization_event(dg.AssetKey("leaderboard"))
    assert event and event.asset_materialization
    shown = str(event.asset_materialization.metadata["1-3"].value).splitlines()[2:]
    assert ["base" in shown[0], "fast" in shown[1], "strict" in shown[2]] == [True] * 3

    del project.recipe["variants"]["fast"]  # its model stays, and the data that its lineage names
    project.write_recipe()
    assert "no variant is named 'fast'" in told("summary", "--variant", "fast", status=2)
    assert {item.paths[0].parent.name for item in gc.find(project.variant_store("base"))} == set()


def test_a_partition_that_is_no_variant_is_refused_before_anything_runs(project: Project) -> None:
    status, said = project.run(*partition("fsat"), job="retokenize")
    assert status != 0
    assert "no variant is named 'fsat'; choose from base, fast, strict" in said
    assert versions(project) == set()


@pytest.mark.slow
def test_eight_variants_write_the_union_of_what_differs_and_an_edit_reruns_what_follows(
    project: Project,
) -> None:
    project.recipe["variants"] = EIGHT
    project.command("variants", "run")
    count = Counter(one.partition("/")[0] for one in versions(project))
    kinds = [one.split("/")[:-1] for one in versions(project)]
    for stage, number in (("raw", 2), ("scrubbed", 2), ("signals", 2), ("quality", 4), ("signatures", 4)):
        assert sum(kind[-1] == stage for kind in kinds) == number, stage
    # the tokenizer is one for all; what is written of the shards is that of two profiles
    assert (count[keys.DEDUP], count[keys.TOKENIZER], count[keys.TOKEN_SHARDS]) == (2, 1, 4)
    assert (count[keys.PRETRAINED_MODEL], count[keys.EXPORTED_MODEL]) == (8, 8)
    used = {variant: used_by(project, variant) for variant in ("base", *EIGHT)}
    union = bytes_of(project, set().union(*used.values()))
    written = bytes_of(project, versions(project))
    eight_times = sum(bytes_of(project, one) for one in used.values())
    assert written == union < 0.5 * eight_times, (written, union, eight_times)
    assert gc.find(project.variant_store("base")) == []

    before = versions(project)
    project.command("variants", "run")
    assert versions(project) == before
    project.recipe["variants"]["fast"] = {"training": {"optimizer": {"lr": 0.02}}}
    project.command("variants", "run")
    made = {one.split("/")[0] for one in versions(project) - before}
    assert made == {keys.PRETRAINED_MODEL, keys.EVALUATION, keys.EXPORTED_MODEL}


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [4.0, 9.0, 15.0])
def test_variants_at_once_beside_a_retokenization_and_a_kill_make_what_each_makes_alone(
    project: Project, tmp_path: Path, seconds: float
) -> None:
    alone = make_project(tmp_path / "alone")
    alone.recipe["variants"] = project.recipe["variants"]
    for variant in ("base", "strict", "fast"):
        alone.make(*partition(variant))
    project.make(job="retokenize")  # the tokenizer, which all share
    killed = project.start(*partition("strict"))
    time.sleep(seconds)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    runs = [
        project.start(*partition("strict")),
        project.start(*partition("fast")),
        project.start(*partition("strict"), job="retokenize"),
    ]
    for run in runs:
        _, said = run.communicate(timeout=900)
        assert run.returncode == 0, said
    for variant in ("strict", "fast"):
        assert weights(project, variant) == weights(alone, variant)
        for key in (keys.DEDUP, keys.TOKENIZER, keys.token_shards("topics"), keys.token_shards("stdlib")):
            ours, theirs = (one.variant_store(variant).current(key) for one in (project, alone))
            assert ours.data_version == theirs.data_version, key
