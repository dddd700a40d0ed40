"""What the page of a stage says beyond its counts."""

from pathlib import Path

import pytest
import yaml

from pipeline.assets.operations.resources import PipelineResources
from pipeline.assets.stage_facts import more
from pipeline.recipe.recipe import RECIPE_VARIABLE, load_recipe
from pipeline.steps.corpus.quality import judge
from pipeline.store import keys
from pipeline.store.store import Store
from tests.integration.project import TRAINING
from tests.pipeline.steps.corpora import ENGINE, SETTINGS, TEXTS, prepare
from trainer.system.history import STORE_VARIABLE


@pytest.mark.parametrize("languages", [None, ["en", "de"]])
def test_the_languages_of_a_corpus_are_shown_where_a_recipe_names_some(
    languages: list[str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store")
    monkeypatch.setenv(STORE_VARIABLE, str(store.root))
    prepare(store, tmp_path / "docs.jsonl", TEXTS[:12])
    quality = {"profile": "docs", "languages": languages}
    corpora = [{"name": "docs", "source": {"kind": "files", "paths": ["docs.jsonl"]}}]
    recipe = {"name": "mine", "corpora": corpora, "training": TRAINING, **SETTINGS, "quality": quality}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    monkeypatch.setenv(RECIPE_VARIABLE, str(tmp_path / "recipe.yaml"))
    version = judge(store, ENGINE, "docs", load_recipe(tmp_path / "recipe.yaml").quality)
    facts = more(keys.quality("{corpus}"), PipelineResources(), version)
    assert ("languages" in facts) == bool(languages)
    assert facts["share kept"] == pytest.approx(version.counts["kept"] / 12, abs=1e-4)
