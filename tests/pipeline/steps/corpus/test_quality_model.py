"""A quality model of the recipe's own: what it learns, what it does not, and what a change makes again."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.recipe import variants
from pipeline.recipe.loading import load_recipe
from pipeline.recipe.recipe import RecipeError
from pipeline.stages.fasttext import read_model, scores
from pipeline.stages.quality import PROFILES, QualityParams
from pipeline.stages.quality_model import QualityModelParams, Score, auc, train, windows
from pipeline.steps.corpus.quality import Quality
from pipeline.steps.corpus.quality_model import FACTS, QualityModel
from pipeline.store import keys
from pipeline.store.errors import PipelineError
from pipeline.store.manifest import Version
from pipeline.store.store import Store
from tests.integration.project import TRAINING
from tests.pipeline.steps.corpora import ENGINE, prepare
from tests.pipeline.steps.make import judge
from tests.rows import stored_rows

GOOD, BAD, COMMON = ("river", "valley", "museum"), ("cheap", "click", "subscribe"), ("the", "a", "of", "and")
PARAMS = QualityModelParams(positive=("good",), negative=("bad",))


def text(words: tuple[str, ...], number: int, length: int = 60) -> str:
    """Common words, and each fifth one of `words`."""
    drawn = np.random.default_rng(number)
    known = (words if i % 5 == 4 else COMMON for i in range(length))
    return " ".join(one[drawn.integers(len(one))] for one in known)  # `choice` takes five times as long


def examples(*sides: tuple[str, ...], length: int = 60, documents: int = 200) -> dict[str, Any]:
    """What `train` takes: as many documents of each corpus, the first of them positive."""
    texts = [text(words, i, length) for words in sides for i in range(documents)]
    corpus = np.repeat(np.arange(len(sides)), documents)
    share = np.tile(np.linspace(0, 0.999, documents), len(sides))
    columns = {"corpus": corpus, "positive": corpus == 0, "share": share}
    return {"texts": pa.array(texts, pa.large_string()), "names": tuple("abcd"[: len(sides)]), **columns}


def probabilities(model: bytes, path: Path, *texts: str) -> list[float]:
    path.write_bytes(model)
    documents = pa.record_batch({"text": pa.array(texts, pa.large_string())})
    return list(Score(str(path), "__label__positive").signals(documents)["probability"])


def test_texts_like_the_positive_ones_are_told_from_the_others(tmp_path: Path) -> None:
    model, facts = train(**examples(GOOD, BAD))
    good, bad = probabilities(model, tmp_path / "m", text(GOOD, 999), text(BAD, 999))
    assert facts["AUC"] == 1 and good > 0.9 and bad < 0.1
    assert train(**examples(GOOD, BAD))[0] == model


def test_the_length_of_a_document_says_nothing() -> None:
    long, short = (examples(COMMON, COMMON, length=length) for length in (3000, 100))
    texts = np.where(long["corpus"] == 0, long["texts"], short["texts"])
    mixed = long | {"texts": windows(pa.array(texts, pa.large_string()))}
    assert 0.3 < train(**mixed)[1]["AUC"] < 0.7


@given(st.lists(st.text(max_size=40), max_size=300).map(" ".join))
def test_windows_are_the_text_or_three_pieces_of_it(drawn: str) -> None:
    (cut,) = windows(pa.array([drawn], pa.large_string())).to_pylist()
    assert cut == drawn if len(drawn) <= 3000 else len(cut) <= 3000
    assert set(cut.split()) <= set(drawn.split())


def test_a_corpus_is_judged_by_a_model_that_was_not_trained_on_it() -> None:
    facts = train(**examples(GOOD, BAD, GOOD, ("click", "cheap")))[1]
    unseen = {name: facts[f"AUC of {name}, left out"] for name in "bcd"}
    assert unseen["d"] == 1 and unseen["c"] < 0.7
    assert "AUC of a, left out" not in facts  # the only positive corpus
    assert 0 < facts["share of variance between sides"] <= facts["share of variance between corpora"] <= 1


def test_a_probability_is_how_often_documents_of_it_are_positive() -> None:
    data = examples(GOOD, BAD, documents=2000)
    wrong = np.random.default_rng(0).random(4000) < 0.2
    facts = train(**data | {"positive": data["positive"] ^ wrong})[1]
    for row in facts["calibration"]:
        if row["documents"] >= 50:
            assert row["mean score"] == pytest.approx(row["positive"], abs=0.12)


@given(st.lists(st.integers(0, 5), min_size=1), st.lists(st.integers(0, 5), min_size=1))
def test_auc_counts_pairs(above: list[int], below: list[int]) -> None:
    pairs = [(a > b) + (a == b) / 2 for a in above for b in below]
    assert auc(np.array(above), np.array(below)) == pytest.approx(np.mean(pairs), abs=1e-4)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    prepare(store, tmp_path / "good.jsonl", [text(GOOD, i) for i in range(200)])
    prepare(store, tmp_path / "bad.jsonl", [text(BAD if i % 4 else GOOD, 1000 + i) for i in range(200)])
    QualityModel(PARAMS).make(store, ENGINE)
    return store


def params(**changes: Any) -> QualityParams:
    one = {"name": "liked", "fasttext": "quality_model", "label": "__label__positive"}
    return QualityParams.model_validate(PROFILES["none"].model_dump() | {"filters": [one | changes]})


def judged(store: Store, **changes: Any) -> Version:
    return judge(store, ENGINE, "bad", params(**changes))


def test_the_top_of_a_corpus_is_kept_and_another_threshold_measures_nothing_again(store: Store) -> None:
    verdicts = judged(store, top=0.2)
    measured = store.current(keys.filtered("bad", "liked"))
    assert verdicts.counts["kept"] == 40 and verdicts.counts["rejected/liked"] == 160
    rows = stored_rows(verdicts, "verdicts")
    found = stored_rows(measured, "signals")
    least = min(row["probability"] for row, verdict in zip(found, rows, strict=True) if verdict["keep"])
    assert all(
        verdict["keep"] == (row["probability"] >= least) for row, verdict in zip(found, rows, strict=True)
    )
    assert judged(store, top=0.1).counts["kept"] == 20
    assert store.current(keys.filtered("bad", "liked")).fingerprint == measured.fingerprint
    then = Quality("bad", params(min=least)).judged_again(store, measured.parts[0].name)
    assert then.column("rule").null_count == 40


def test_the_top_is_a_share_of_the_documents_in_the_languages_to_keep(store: Store) -> None:
    words = ("und", "nicht", "weil", "ihre", "nach", "der", "zwischen", "den", "spielten", "obwohl", *GOOD)
    german = [" ".join(np.random.default_rng(i).choice(words, 60)) for i in range(60)]
    lines = german + [text(words, i) for words in (GOOD, BAD) for i in range(30)]
    prepare(store, store.root.parent / "mixed.jsonl", lines)
    changes = {"filters": params(top=0.8).filters, "languages": ("en",)}
    wanted = PROFILES["none"].model_copy(update=changes)
    verdicts = judge(store, ENGINE, "mixed", wanted)
    kept = [row["keep"] for row in stored_rows(verdicts, "verdicts")]
    assert kept[:90] == [False] * 60 + [True] * 30 and 48 <= sum(kept) <= 50


def test_the_model_is_found_again_and_another_one_is_measured_again(store: Store) -> None:
    before = judged(store, top=0.2)
    assert QualityModel(PARAMS).make(store, ENGINE).reused
    made = store.current(keys.QUALITY_MODEL)
    assert (
        set(made.only("quality_model").files.root.parts)
        and json.loads(made.only(FACTS).read_text())["AUC"] > 0.7
    )
    prepare(store, store.root.parent / "good.jsonl", [text(GOOD, 5000 + i) for i in range(300)])
    assert not QualityModel(PARAMS).make(store, ENGINE).reused
    assert judged(store, top=0.2).fingerprint != before.fingerprint


def test_fasttext_reads_the_file(store: Store) -> None:
    model = read_model(Path(store.current(keys.QUALITY_MODEL).only("quality_model")))
    assert model.labels == ("__label__positive", "__label__negative")
    assert scores(model, pa.array([text(GOOD, 3)])).sum() == pytest.approx(1, abs=1e-4)


def test_a_mistake_is_one_sentence(store: Store, tmp_path: Path) -> None:
    prepare(store, tmp_path / "few.jsonl", [text(GOOD, i) for i in range(20)])
    with pytest.raises(PipelineError, match="too few documents to hold some out"):
        QualityModel(QualityModelParams(positive=("few",), negative=("bad",))).make(store, ENGINE)
    recipe = {
        "name": "own",
        "corpora": [{"name": "notes", "source": {"kind": "files", "paths": ["*.jsonl"]}}],
    }
    path = tmp_path / "recipe.yaml"
    path.write_text(
        json.dumps(
            recipe | {"training": TRAINING, "quality_model": {"positive": ["note"], "negative": ["notes"]}}
        )
    )
    with pytest.raises(RecipeError, match=r"quality_model\.positive: unknown corpus 'note'"):
        load_recipe(path)


def test_a_filter_without_the_model_that_it_reads_is_refused_with_the_recipe(tmp_path: Path) -> None:
    quality = {"filters": [{"name": "liked", "fasttext": "quality_model", "label": "__label__positive"}]}
    corpus = {"name": "notes", "source": {"kind": "files", "paths": ["*.jsonl"]}}
    recipe = {"name": "own", "corpora": [corpus], "training": TRAINING}
    model = {"positive": ["notes"], "negative": ["notes"]}
    path = tmp_path / "recipe.yaml"
    for lacking in (
        {"quality": quality},
        {"corpora": [corpus | {"quality": quality}]},
        {"variants": {"filtered": {"quality": quality}}},
        {"quality_model": model, "quality": quality, "variants": {"bare": {"quality_model": None}}},
    ):
        path.write_text(json.dumps(recipe | lacking))
        with pytest.raises(RecipeError, match=r"filter 'liked' reads the recipe's `quality_model`, which is"):
            variants.load_all(path)
    path.write_text(json.dumps(recipe | {"quality_model": model, "quality": quality}))
    assert load_recipe(path).quality_model
