"""What a step and a look at a source cost in a recipe of many corpora."""

import json
from collections.abc import Callable
from cProfile import Profile
from functools import partial
from pathlib import Path

import dagster as dg
import pytest
import yaml

from pipeline.assets.operations.resources import PipelineResources
from pipeline.assets.stages import stage_assets
from pipeline.assets.used_recipe import OWN
from pipeline.recipe.loading import RECIPE_VARIABLE
from pipeline.steps.lineage.source_state import State, observe_all
from pipeline.steps.stages import made_of_one_corpus, of_corpus, of_data
from tests.integration.project import TRAINING
from tests.pipeline.steps.corpora import TEXTS
from trainer.system.paths import STORE_VARIABLE

FEW, MANY = 20, 100


def workshop_of(directory: Path, corpora: int, monkeypatch: pytest.MonkeyPatch) -> PipelineResources:
    """A run of a recipe with so many corpora; the first has a setting of its own."""
    directory.mkdir()
    named = []
    for number in range(corpora):
        path = directory / f"{number}.jsonl"
        path.write_text(json.dumps({"text": TEXTS[number % len(TEXTS)]}) + "\n")
        named.append({"name": f"c{number}", "source": {"kind": "files", "paths": [str(path)]}})
    named[0]["edits"] = {"repeated": [{"unit": "paragraph"}]}
    settings = {"name": "many", "corpora": named, "training": TRAINING}
    (directory / "recipe.yaml").write_text(yaml.safe_dump(settings))
    monkeypatch.setenv(RECIPE_VARIABLE, str(directory / "recipe.yaml"))
    monkeypatch.setenv(STORE_VARIABLE, str(directory / "store"))
    return PipelineResources()


def calls(function: Callable[[], object]) -> int:
    """How many functions of Python are called meanwhile: unlike time, the same on every machine."""
    profile = Profile(builtins=False)
    profile.runcall(function)
    return sum(entry.callcount for entry in profile.getstats())


def test_a_step_costs_the_same_among_many_corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cost = []
    for corpora in (FEW, MANY):
        workshop = workshop_of(tmp_path / str(corpora), corpora, monkeypatch)
        raw = stage_assets(workshop.recipe, "corpus", OWN)[:corpora]
        materialize(raw[:9])  # so that there is nothing to do below
        cost.append(calls(partial(materialize, raw[:9])) - calls(partial(materialize, raw[:1])))
    assert cost[1] < 1.1 * cost[0], cost


def materialize(assets: list[dg.AssetsDefinition]) -> None:
    assert dg.materialize(assets, resources={"workshop": PipelineResources()}).success


def test_a_look_at_all_sources_takes_as_long_as_there_are_corpora(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost = []
    for corpora in (FEW, MANY):
        workshop = workshop_of(tmp_path / str(corpora), corpora, monkeypatch)
        for path in (tmp_path / str(corpora)).glob("*.jsonl"):
            path.unlink()  # of a source out of reach, the assets that the store has are looked for, too
        observe = partial(observe_all, workshop.store, workshop.recipe)
        assert {one.state for one in observe()} == {State.UNKNOWN}
        cost.append(calls(observe))
    assert cost[1] < 1.1 * MANY / FEW * cost[0], cost


def test_what_is_made_of_one_corpus_is_the_same_as_in_all_stages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = workshop_of(tmp_path / "few", 3, monkeypatch).recipe
    everything = of_data(recipe)
    for corpus in recipe.corpus_names:
        own = of_corpus(recipe, corpus)
        assert own == {key: stage for key, stage in everything.items() if key.corpus == corpus}
        assert set(made_of_one_corpus(recipe, corpus)) > {key for key in own if key.stage == "raw"}
