"""fastText models that a recipe names by path: what a change measures again, and what a mistake says."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from pipeline.plugins.loading import PluginError
from pipeline.recipe.loading import load_recipe
from pipeline.recipe.recipe import RecipeError
from pipeline.stages.fasttext import read_model, scores
from pipeline.stages.quality import PROFILES, QualityParams
from pipeline.store import keys
from pipeline.store.errors import PipelineError
from pipeline.store.manifest import Version
from pipeline.store.store import Store
from tests.integration.project import TRAINING
from tests.pipeline.stages.test_fasttext import a_model
from tests.pipeline.steps.corpora import ENGINE, TEXTS, prepare
from tests.pipeline.steps.make import judge
from tests.rows import stored_rows

CLASSIFIER = {"name": "liked", "fasttext": "model.bin", "label": "__label__y", "min": 0.3}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "model.bin").write_bytes(a_model()[0])
    store = Store(tmp_path / "store")
    prepare(store, tmp_path / "notes.jsonl", TEXTS)
    return store


def params(directory: Path, **changes: Any) -> QualityParams:
    return QualityParams.model_validate(PROFILES["none"].model_dump() | changes).anchored(directory)


def judged(store: Store, directory: Path, **changes: Any) -> Version:
    return judge(store, ENGINE, "notes", params(directory, **changes))


def liked(store: Store, directory: Path, **changes: Any) -> Version:
    return judged(store, directory, filters=[CLASSIFIER | changes])


def test_a_classifier_keeps_what_it_finds_likely_and_its_probability_is_stored(
    store: Store, tmp_path: Path
) -> None:
    verdicts = liked(store, tmp_path)
    documents = stored_rows(store.current(keys.scrubbed("notes")), "documents")
    texts = {row["id"]: row["text"] for row in documents}
    model = read_model(tmp_path / "model.bin")
    expected = scores(model, pa.array(texts.values(), pa.large_string()))[:, 1]
    found = stored_rows(store.current(keys.filtered("notes", "liked")), "signals")
    assert [row["probability"] for row in found] == pytest.approx(expected)
    assert [row["rule"] for row in stored_rows(verdicts, "verdicts")] == [
        None if probability >= 0.3 else "liked" for probability in expected
    ]
    assert 0 < verdicts.counts["rejected/liked"] < len(TEXTS)


def test_another_threshold_or_place_of_the_file_measures_nothing_again(store: Store, tmp_path: Path) -> None:
    before = liked(store, tmp_path)
    measured = store.current(keys.filtered("notes", "liked")).data_version
    loosened = liked(store, tmp_path, min=0.2)
    assert loosened.counts["kept"] > before.counts["kept"]
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "model.bin").rename(tmp_path / "elsewhere" / "other.bin")
    again = liked(store, tmp_path / "elsewhere", fasttext="other.bin")
    assert again.reused and again.fingerprint == before.fingerprint
    assert store.current(keys.filtered("notes", "liked")).data_version == measured


def test_another_content_of_the_file_or_another_label_is_measured(store: Store, tmp_path: Path) -> None:
    (tmp_path / "new.bin").write_bytes(a_model(word_ngrams=1)[0])
    versions = set()
    for changes in ({}, {"label": "__label__z"}, {"fasttext": "new.bin"}):
        liked(store, tmp_path, **{"min": 0, **changes})
        versions.add(store.current(keys.filtered("notes", "liked")).data_version)
    assert len(versions) == 3


def test_a_language_model_decides_by_its_labels_without_their_prefix(store: Store, tmp_path: Path) -> None:
    few = {"language_model": "model.bin", "min_language_confidence": 0.0}
    verdicts = judged(store, tmp_path, languages=["x", "z"], **few)
    languages = stored_rows(store.current(keys.languages("notes")), "languages")
    assert {row["language"] for row in languages} <= {"x", "y", "z"}
    assert [row["keep"] for row in stored_rows(verdicts, "verdicts")] == [
        row["language"] != "y" for row in languages
    ]
    detected = store.current(keys.languages("notes")).fingerprint
    judged(store, tmp_path, languages=["x", "y"], **few)
    assert store.current(keys.languages("notes")).fingerprint == detected
    judged(store, tmp_path, languages=["en"])
    assert store.current(keys.languages("notes")).fingerprint != detected


def test_a_mistake_is_one_sentence(store: Store, tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="has no label 'y': it has __label__x __label__y __label__z"):
        liked(store, tmp_path, label="y")
    with pytest.raises(
        PipelineError, match=r"absent\.bin cannot be read: No such file or directory; relative"
    ):
        liked(store, tmp_path, fasttext="absent.bin")
    (tmp_path / "cut.bin").write_bytes(a_model()[0][:90])
    with pytest.raises(PluginError, match=r"cut\.bin is damaged"):
        liked(store, tmp_path, fasttext="cut.bin")
    with pytest.raises(PipelineError, match=r"quality\.languages: .*does not know 'en': it knows x y z"):
        judged(store, tmp_path, language_model="model.bin", languages=["en"])


def test_paths_start_at_the_recipe(tmp_path: Path) -> None:
    quality = {"language_model": "lid.bin", "languages": ["eng_Latn"], "filters": [CLASSIFIER]}
    source = {"kind": "files", "paths": ["*.jsonl"]}
    recipe: dict[str, Any] = {"name": "own", "corpora": [{"name": "notes", "source": source}]}
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe | {"training": TRAINING, "quality": quality}))
    loaded = load_recipe(path).quality
    (one,) = loaded.filters
    assert loaded.language_file == tmp_path / "lid.bin"
    assert one.params["model"] == str(tmp_path / "model.bin")
    assert QualityParams.model_validate(loaded.model_dump()).filters[0].name == "liked"
    path.write_text(
        yaml.safe_dump(recipe | {"training": TRAINING, "quality": {"filters": [CLASSIFIER | {"min": 2}]}})
    )
    with pytest.raises(RecipeError, match=r"quality\.filters\.0\.min: "):
        load_recipe(path)
