"""A dedup that removes more than expected stops the run before the tokenizer, and says where."""

import re
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow.parquet as pq
import pytest
import yaml

from pipeline.assets.operations.resources import PipelineResources
from pipeline.assets.stages import stage_assets
from pipeline.assets.tokenizer import tokenizer_asset
from pipeline.assets.used_recipe import OWN
from pipeline.recipe.loading import RECIPE_VARIABLE, load_recipe
from pipeline.store import keys
from pipeline.store.store import Store
from tests.integration.project import TRAINING
from tests.pipeline.steps.corpora import SETTINGS, TEXTS, prepare
from trainer.system.paths import STORE_VARIABLE


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Two corpora up to quality: of nine good documents of `copies` six are in `originals` too."""
    store = Store(tmp_path / "store")
    monkeypatch.setenv(STORE_VARIABLE, str(store.root))
    prepare(store, tmp_path / "originals.jsonl", TEXTS[:20])
    prepare(store, tmp_path / "copies.jsonl", TEXTS[14:24])
    return store


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guard: dict[str, Any]) -> dg.ExecuteInProcessResult:
    corpora = [
        {"name": name, "source": {"kind": "files", "paths": [f"{name}.jsonl"]}}
        for name in ("originals", "copies")
    ]
    path = tmp_path / "recipe.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "name": "mine",
                "corpora": corpora,
                "dedup_guard": guard,
                "tokenizer": {"vocab_size": 300},
                "training": TRAINING,
                **SETTINGS,
            }
        )
    )
    monkeypatch.setenv(RECIPE_VARIABLE, str(path))
    recipe = load_recipe(path)
    definitions = dg.Definitions(
        assets=[*stage_assets(recipe, "corpus", OWN), tokenizer_asset(recipe, OWN)],
        jobs=[dg.define_asset_job("both", ["dedup", "tokenizer"])],
        resources={"workshop": PipelineResources()},
    )
    return definitions.resolve_job_def("both").execute_in_process(raise_on_error=False)


@pytest.mark.parametrize(
    ("guard", "said"),
    [
        (
            {"max_lost_share": 0.5},
            [
                "corpus 'copies' loses 6 of 9 documents (67%, the limit is 50%), among them ",
                "`python -m pipeline inspect documents exact --corpus copies`",
                "dedup_guard.max_lost_share",
            ],
        ),
        (
            {"max_lost_share": 1, "max_cluster_size": 1},
            [" of corpus 'originals' stands for 2 documents (the limit is 1), among them "],
        ),
    ],
)
def test_too_much_removed_stops_the_tokenizer(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guard: dict[str, Any], said: list[str]
) -> None:
    result = run(tmp_path, monkeypatch, guard)
    assert not result.success
    (check,) = result.get_asset_check_evaluations()
    assert not check.passed and check.blocking
    assert all(words in (check.description or "") for words in said), check.description
    assert check.metadata["share removed"].value == 0.2069  # rounded: 6 of 29
    assert [*store.newest_first(keys.DEDUP)] and not [*store.newest_first(keys.TOKENIZER)]


def test_the_removed_documents_that_are_named_are_copies_of_the_one_that_is_kept(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (check,) = run(
        tmp_path, monkeypatch, {"max_lost_share": 1, "max_cluster_size": 1}
    ).get_asset_check_evaluations()
    named = re.findall(r"(\w+) of corpus 'originals' stands .*? among them (\w+):", check.description or "")
    (made,) = store.newest_first(keys.DEDUP)
    decisions = [row for file in made.files("decisions") for row in pq.read_table(Path(file)).to_pylist()]
    copies = {(row["duplicate_of"], row["id"]) for row in decisions if not row["keep"]}
    assert named and copies.issuperset(named)


def test_what_is_allowed_goes_on_and_a_guard_is_no_part_of_what_was_made(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not run(tmp_path, monkeypatch, {"max_lost_share": 0.5}).success
    (stopped,) = store.newest_first(keys.DEDUP)
    result = run(tmp_path, monkeypatch, {"max_lost_share": 0.7})
    assert result.success
    assert [*store.newest_first(keys.DEDUP)] == [stopped] and [*store.newest_first(keys.TOKENIZER)]
