"""Documents that quote an evaluation set are found, removed with their evidence, or only reported."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.cli import main
from pipeline.plugins.settings import TransformParams
from pipeline.plugins.transforms import Transform
from pipeline.recipe.evaluation import Decontamination
from pipeline.recipe.loading import load_recipe
from pipeline.recipe.recipe import RecipeError
from pipeline.stages.dedup import DedupParams
from pipeline.stages.pii import PiiParams
from pipeline.steps.corpus.decontamination import Contamination, EvaluationNgrams
from pipeline.store import keys
from pipeline.store.engines.local import LocalEngine
from pipeline.store.errors import PipelineError
from pipeline.store.manifest import Version
from pipeline.store.parts import kept_documents
from pipeline.store.store import Store
from tests.integration.project import TRAINING
from tests.pipeline.plugins.code import write
from tests.pipeline.steps.corpora import SETTINGS, TEXTS, prepare
from tests.pipeline.steps.make import deduplicate
from tests.pipeline.steps.stored import put
from tests.rows import stored_rows

ENGINE = LocalEngine(workers=1)
QUESTION = (
    "Write to jane.doe@example.com and ask how many of the 48 clips she sold in April were returned "
    "to the shop by her friends."
)
SCRUBBED = QUESTION.replace("jane.doe@example.com", "[EMAIL]")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A corpus whose document `d1` quotes the evaluation file; `d2` is like `d1` but for the quote."""
    store = Store(tmp_path / "store")
    (tmp_path / "exam.jsonl").write_text(
        "".join(json.dumps({"question": text}) + "\n" for text in (QUESTION, "Too short to say anything."))
    )
    put(
        store,
        "docs",
        {"p": {"d0": TEXTS[0], "d1": f"{TEXTS[1]} {SCRUBBED}", "d2": TEXTS[1]}, "q": {"d3": TEXTS[3]}},
    )
    return store


def params(tmp_path: Path, **changes: Any) -> Decontamination:
    source = {"kind": "files", "paths": [str(tmp_path / "exam.jsonl")], "text_column": "question"}
    return Decontamination.model_validate({"sets": [{"name": "exam", "source": source}]} | changes)


def searched(store: Store, asked: Decontamination) -> Version:
    EvaluationNgrams(asked, [PiiParams()], ()).make(store, ENGINE)
    return Contamination("docs", asked).make(store, ENGINE)


def test_a_quote_goes_with_its_evidence_and_what_is_like_it_stays(store: Store, tmp_path: Path) -> None:
    found = searched(store, params(tmp_path))
    (hit,) = stored_rows(found, "contamination")
    assert (hit["id"], hit["set"], hit["ngram"]) == (
        "d1",
        "exam",
        "write to [email] and ask how many of the 48 clips she sold",
    )
    assert " ".join(TEXTS[1].split()[:3]).lower() not in hit["ngram"]
    decided = deduplicate(store, ENGINE, ["docs"], DedupParams(threshold=0.5), decontaminated=True)
    assert {row["id"]: (row["keep"], row["reason"]) for row in stored_rows(decided, "decisions")} == {
        "d0": (True, None),
        "d1": (False, "contaminated"),
        "d2": (True, None),
        "d3": (True, None),
    }
    assert decided.counts["removed/contaminated"] == 1 and decided.counts["documents"] == 4
    assert [name for batch in kept_documents(store, "docs") for name in batch.column("id").to_pylist()] == [
        "d0",
        "d2",
        "d3",
    ]


def test_reported_only_nothing_is_removed_for_it_and_dedup_is_as_without(
    store: Store, tmp_path: Path
) -> None:
    before = deduplicate(store, ENGINE, ["docs"], DedupParams())
    assert searched(store, params(tmp_path, action="report")).counts["contaminated/exam"] == 1
    assert deduplicate(store, ENGINE, ["docs"], DedupParams()).fingerprint == before.fingerprint


def test_a_quote_that_transforms_rewrite_is_found(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    write(
        tmp_path,
        "swap",
        "def swap(documents):\n    return [t.replace('how', 'just how') for t in "
        "documents['text'].to_pylist()]\n",
    )
    chain = [Transform(TransformParams(python="swap:swap", version="1"))]
    put(store, "docs", {"p": {"d1": f"{TEXTS[1]} {SCRUBBED.replace('how', 'just how')}"}})
    strict = params(tmp_path, ngram=20, min_words=20)
    EvaluationNgrams(strict, [PiiParams()], ()).make(store, ENGINE)
    assert Contamination("docs", strict).make(store, ENGINE).counts["contaminated"] == 0
    EvaluationNgrams(strict, [PiiParams()], [chain]).make(store, ENGINE)
    assert Contamination("docs", strict).make(store, ENGINE).counts["contaminated"] == 1


def test_inspect_shows_what_a_document_quotes(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = params(tmp_path)
    prepare(store, tmp_path / "docs.jsonl", [TEXTS[0], f"{TEXTS[1]} {QUESTION}", TEXTS[2]])
    searched(store, asked)
    settings = {**SETTINGS, "decontamination": asked.model_dump()}
    monkeypatch.setenv("GROUNDWORK_STORE", str(store.root))
    monkeypatch.setenv("GROUNDWORK_RECIPE", str(recipe(tmp_path, **settings)))
    assert main(["inspect", "documents", "contaminated"]) == 0
    said = capsys.readouterr().out
    assert "quotes exam: 'write to [email] and ask how many of the 48 clips she sold'" in said
    assert said.count("docs ") == 1


def test_a_changed_part_is_searched_alone_and_a_changed_set_searches_all(
    store: Store, tmp_path: Path
) -> None:
    def inodes() -> dict[str, int]:
        version = searched(store, params(tmp_path))
        return {part.name: version.file(part, "verdicts").path.stat().st_ino for part in version.parts}

    first = inodes()
    put(
        store,
        "docs",
        {"p": {"d0": TEXTS[0], "d1": f"{TEXTS[1]} {SCRUBBED}", "d2": TEXTS[1]}, "q": {"d3": SCRUBBED}},
    )
    second = inodes()
    assert second["p"] == first["p"] and second["q"] != first["q"]
    found = stored_rows(store.current(keys.contamination("docs")), "contamination")
    assert [row["id"] for row in found] == ["d1", "d3"]
    (tmp_path / "exam.jsonl").write_text(json.dumps({"question": " ".join(TEXTS[0].split()[5:40])}))
    assert all(inodes()[name] != second[name] for name in ("p", "q"))
    found = stored_rows(store.current(keys.contamination("docs")), "contamination")
    assert [row["id"] for row in found] == ["d0"]


def recipe(tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "recipe.yaml"
    corpora = [{"name": "docs", "source": {"kind": "files", "paths": ["docs.jsonl"]}}]
    path.write_text(yaml.safe_dump({"name": "mine", "corpora": corpora, "training": TRAINING} | changes))
    return path


def test_a_recipe_names_sets_relative_to_itself_and_each_once(tmp_path: Path) -> None:
    one = {"name": "exam", "source": {"kind": "files", "paths": ["exam.jsonl"]}}
    loaded = load_recipe(recipe(tmp_path, decontamination={"sets": [one]}))
    assert loaded.decontamination and loaded.decontamination.sets[0].source.patterns() == [
        str(tmp_path / "exam.jsonl")
    ]
    assert loaded.removes_contaminated and not load_recipe(recipe(tmp_path)).removes_contaminated
    with pytest.raises(RecipeError, match="two evaluation sets are named 'exam'"):
        load_recipe(recipe(tmp_path, decontamination={"sets": [one, one]}))


def test_a_set_without_a_text_that_is_long_enough_is_named(store: Store, tmp_path: Path) -> None:
    (tmp_path / "exam.jsonl").write_text(json.dumps({"question": "Too short to say anything."}) + "\n")
    with pytest.raises(PipelineError, match=r"'exam' has no text of \d+ words or more: name the column"):
        EvaluationNgrams(params(tmp_path), [PiiParams()], ()).make(store, ENGINE)
