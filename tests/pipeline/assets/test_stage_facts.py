"""What the page of a stage says beyond its counts."""

from pathlib import Path

import pytest
import yaml
from pyarrow import parquet

from pipeline.assets.metadata import breakdown_table, materialized
from pipeline.assets.operations.resources import PipelineResources
from pipeline.assets.stages import more_facts
from pipeline.recipe.loading import RECIPE_VARIABLE, load_recipe
from pipeline.steps.corpus.quality import Quality
from pipeline.store import keys
from pipeline.store.store import Store
from tests.integration.project import TRAINING
from tests.pipeline.steps.corpora import ENGINE, SETTINGS, TEXTS, prepare
from tests.pipeline.steps.make import judge
from trainer.system.paths import STORE_VARIABLE


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
    facts = more_facts(Quality, PipelineResources(), version)
    assert ("languages" in facts) == bool(languages)
    assert facts["share kept"] == pytest.approx(version.counts["kept"] / 12, abs=1e-4)


def test_values_that_were_replaced_are_not_called_documents() -> None:
    shown = breakdown_table({"spans": 28, "spans/email": 28, "documents_with_pii": 21}, "spans", "kind")
    assert [record.data for record in shown.records] == [{"kind": "email", "count": 28}]


def test_a_version_says_where_it_is_and_which_columns_it_has(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    prepare(store, tmp_path / "docs.jsonl", TEXTS[:6])
    version = store.current(keys.quality("docs"))
    metadata = materialized(version, {}).metadata or {}
    assert metadata["dagster/uri"] == version.path.as_uri()
    shown = {column.name: column.type for column in metadata["dagster/column_schema"].columns}
    table = parquet.read_schema(version.files("verdicts")[0].path)
    assert shown == {column.name: str(column.type) for column in table} and "id" in shown


def test_the_page_of_raw_counts_the_parts_that_later_stages_read(tmp_path: Path) -> None:
    """Each group of files also has a table of what was set aside."""
    store = Store(tmp_path / "store")
    prepare(store, tmp_path / "docs.jsonl", TEXTS[:6])
    raw, scrubbed = (store.current(key) for key in (keys.raw("docs"), keys.scrubbed("docs")))
    shown = [(materialized(version, {}).metadata or {})["parts"] for version in (raw, scrubbed)]
    assert shown[0] == shown[1] == len(scrubbed.parts)


def test_quality_shows_shares_of_the_bytes_beside_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short document in three is a small share of the text."""
    store = Store(tmp_path / "store")
    monkeypatch.setenv(STORE_VARIABLE, str(store.root))
    texts = [*TEXTS[:6], TEXTS[0], "Too short.", "Too short, too."]
    prepare(store, tmp_path / "docs.jsonl", texts)
    corpora = [{"name": "docs", "source": {"kind": "files", "paths": ["docs.jsonl"]}}]
    recipe = {"name": "mine", "corpora": corpora, "training": TRAINING, **SETTINGS}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    monkeypatch.setenv(RECIPE_VARIABLE, str(tmp_path / "recipe.yaml"))
    workshop, verdicts = PipelineResources(), store.current(keys.quality("docs"))
    judged = more_facts(Quality, workshop, verdicts)
    (short,) = [
        one.data for one in judged["verdicts by rule"].records if one.data["verdict"] == "min_doc_words"
    ]
    assert short["share"] == pytest.approx(2 / 9, abs=1e-4)
    whole = sum(len(text.encode()) for text in texts)
    assert short["share of bytes"] == pytest.approx(sum(map(len, texts[-2:])) / whole, abs=1e-4)
    assert judged["share of bytes kept"] == pytest.approx(1 - short["share of bytes"], abs=2e-4)
