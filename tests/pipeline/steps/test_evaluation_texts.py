"""Evaluation texts: read once for all recipes, no part of what a model is made from, scored by document."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import bootstrap

from pipeline.recipe.loading import load_recipe
from pipeline.recipe.recipe import Recipe, RecipeError
from pipeline.recipe.variants import load_all
from pipeline.sources.benchmarks.items import Benchmark, Question
from pipeline.steps.corpus.evaluation_texts import EvaluationWindows
from pipeline.steps.model.benchmark import AskedBenchmark, by_cluster
from pipeline.steps.recipe_versions import RecipeVersions
from pipeline.steps.stages import final_assets, of_data
from pipeline.store import keys
from pipeline.store.engines.local import LocalEngine
from pipeline.store.errors import PipelineError
from pipeline.store.manifest import Version
from pipeline.store.parquet import read_table
from pipeline.store.store import Store
from tests.integration.project import TRAINING

MAIL = "Write to jane.doe@gmail.com. "


def recipe(directory: Path, texts: dict[str, str], **changes: object) -> Recipe:
    for name, text in texts.items():
        (directory / f"{name}.txt").write_text(text)
    written = {
        "name": "eval",
        "corpora": [{"name": "topics", "source": {"kind": "files", "paths": ["topics.jsonl"]}}],
        "evaluation": {
            "texts": [{"name": name, "source": {"kind": "files", "paths": [f"{name}.txt"]}} for name in texts]
        },
        "tokenizer": {"vocab_size": 300},
        "training": TRAINING,
        **changes,
    }
    path = directory / "recipe.yaml"
    path.write_text(json.dumps(written))
    return load_recipe(path)


def cut(store: Path, made_by: Recipe) -> Version:
    (windows,) = EvaluationWindows.all_of(made_by)
    return windows.make(Store(store, RecipeVersions(made_by)), LocalEngine(1))


def test_recipes_that_filter_and_scrub_otherwise_share_a_text(tmp_path: Path) -> None:
    first = cut(tmp_path / "store", recipe(tmp_path, {"mail": MAIL * 100}))
    other = {"name": "other", "scrub": {"kinds": []}, "quality": {"min_words": 5000}}
    second = cut(tmp_path / "store", recipe(tmp_path, {"mail": MAIL * 100}, **other))
    assert (second.fingerprint, second.reused) == (first.fingerprint, True)
    assert "jane" not in read_table(first.only("windows")).column("text")[0].as_py()


def test_a_text_is_no_part_of_what_a_model_is_made_from(tmp_path: Path) -> None:
    found = recipe(tmp_path, {"mail": MAIL})
    assert keys.evaluation_text("mail") not in {*of_data(found), *final_assets(found)}


def test_a_text_without_words_is_named(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"'text\.blank' is empty: .*Check its `source`"):
        cut(tmp_path / "store", recipe(tmp_path, {"blank": "\u00a0 \u00a0"}))


def test_variants_are_scored_on_the_same_texts(tmp_path: Path) -> None:
    recipe(tmp_path, {"mail": MAIL}, variants={"other": {"evaluation": {"texts": []}}})
    with pytest.raises(RecipeError, match=r"variants\.other: .*change evaluation\.texts"):
        load_all(tmp_path / "recipe.yaml")


def test_the_interval_is_that_of_a_bootstrap_over_documents() -> None:
    chance = np.random.default_rng(1)
    documents = np.repeat(np.arange(60), chance.integers(1, 9, 60))
    sizes = chance.integers(200, 1024, len(documents))
    easy = chance.normal(2, 0.3, 60)[documents]  # windows of a document are alike
    bits = sizes * (easy + chance.normal(0, 0.1, len(documents)))
    items = tuple(Question(context="", continuations=("x" * size,), gold=0) for size in sizes.tolist())
    asked = AskedBenchmark(Benchmark("text", items, None), {}, tuple(map(str, documents)))
    found = by_cluster(asked, [[-one * np.log(2)] for one in bits.tolist()])
    assert found["value"] == pytest.approx(bits.sum() / sizes.sum())
    totals = [np.bincount(documents, weights=one) for one in (bits, sizes)]
    drawn = bootstrap(
        totals,
        lambda nats, size, axis: nats.sum(axis) / size.sum(axis),
        paired=True,
        vectorized=True,
        method="basic",
        random_state=1,
    ).confidence_interval
    assert (found["low"], found["high"]) == pytest.approx((drawn.low, drawn.high), abs=0.01)
    assert found["high"] - found["low"] == pytest.approx(drawn.high - drawn.low, rel=0.1)
