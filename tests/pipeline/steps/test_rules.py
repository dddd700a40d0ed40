"""The rules of a corpus: its own settings over those of the recipe."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.recipe import non_defaults
from pipeline.recipe.loading import load_recipe
from pipeline.recipe.recipe import Recipe, RecipeError
from pipeline.recipe.variants import load, load_all
from pipeline.stages.quality import PROFILES
from pipeline.steps.corpus.quality import Quality
from pipeline.steps.dedup.dedup import Dedup
from pipeline.steps.dedup.limits import by_corpus
from pipeline.steps.recipe_versions import RecipeVersions, differing, store_of
from pipeline.store import keys
from pipeline.store.manifest import breakdown
from pipeline.store.parts import kept_documents
from pipeline.store.store import Store
from pipeline.store.variant_names import BASE
from tests.integration.project import TRAINING
from tests.pipeline.steps.corpora import ENGINE
from tests.pipeline.steps.make import up_to_dedup
from tests.rows import jsonl
from trainer.system.paths import STORE_VARIABLE

SENTENCE = "The sailor of the old ship and the captain have to be on deck with number {} at {} bells. "
ADDRESS = "jane.doe@gmail.com"
RECIPE: dict[str, Any] = {
    "name": "mine",
    "corpora": [
        {"name": "web", "source": {"kind": "files", "paths": ["web.jsonl"]}},
        {"name": "books", "source": {"kind": "files", "paths": ["books.jsonl"]}, "weight": None},
    ],
    "quality": {"profile": "gopher", "min_doc_words": 30},
    "decontamination": {"sets": [{"name": "exam", "source": {"kind": "files", "paths": ["exam.txt"]}}]},
    "training": TRAINING,
}


def text(sentences: int, first: int = 0) -> str:
    return (
        "".join(SENTENCE.format(n, n * n) for n in range(first, first + sentences)) + f"Write to {ADDRESS}."
    )


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two corpora: a document of each is in the other, too, and each has a short one and a long one."""
    for name, first in (("web", 0), ("books", 500)):
        texts = [text(20), text(1, first), text(30, first + 100), text(40, first + 200)]
        jsonl(tmp_path / f"{name}.jsonl", *({"text": one} for one in texts))
    (tmp_path / "exam.txt").write_text(
        "Which of these words is not one of the words of this short exam at all? " * 3
    )
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "store"))
    return tmp_path / "recipe.yaml"


def opened(project: Path, *corpora: dict[str, Any], **changes: Any) -> tuple[Recipe, Store]:
    """The recipe, its corpora changed by `corpora` in their order, after the stages up to dedup."""
    changed = [old | new for old, new in zip(RECIPE["corpora"], [*corpora, {}, {}], strict=False)]
    project.write_text(yaml.safe_dump(RECIPE | {"corpora": changed} | changes))
    recipe = load_recipe(project)
    store = store_of(recipe)
    up_to_dedup(store, ENGINE, recipe)
    return recipe, store


def rejected(store: Store, corpus: str) -> dict[str, int]:
    return breakdown(store.current(keys.quality(corpus)).counts, "rejected")


def test_a_corpus_is_judged_by_its_own_thresholds_over_those_of_the_recipe(project: Path) -> None:
    for own, least in (({"min_doc_words": 10}, 10), ({"profile": "gopher"}, 30), ("gopher", 50)):
        recipe, store = opened(project, {}, {"quality": own})
        assert recipe.rules("web").quality == recipe.quality
        wanted = PROFILES["gopher"].model_copy(update={"min_doc_words": least})
        assert recipe.rules("books").quality.model_dump() == wanted.model_dump()
        assert rejected(store, "web") == {"min_doc_words": 1}
        assert rejected(store, "books") == ({} if least == 10 else {"min_doc_words": 1})
        meant = RecipeVersions(recipe).find(store, keys.quality("books"))
        assert meant.fingerprint == store.current(keys.quality("books")).fingerprint


def test_a_corpus_is_scrubbed_its_own_way_and_quotes_are_found_in_it(project: Path) -> None:
    """A quote with an address is found in the corpus that keeps addresses, and in the one that does not."""
    exam = f"Whoever has read all of these words may write to {ADDRESS} about each and every one of them."
    project.with_name("exam.txt").write_text(exam)
    for name in ("web", "books"):
        with project.with_name(f"{name}.jsonl").open("a") as file:
            file.write(json.dumps({"text": text(25, 900) + exam}) + "\n")
    recipe, store = opened(project, {}, {"scrub": {"kinds": ["phone"]}}, quality="none")
    assert recipe.rules("books").scrub.kinds == ("phone",)
    texts = {
        name: "".join(next(kept_documents(store, name)).column("text").to_pylist())
        for name in recipe.corpus_names
    }
    assert ADDRESS in texts["books"] and ADDRESS not in texts["web"] and "[EMAIL]" in texts["web"]
    assert [store.current(keys.contamination(name)).counts["contaminated"] for name in texts] == [1, 1]


def test_a_corpus_apart_loses_no_document_and_takes_none_from_others(project: Path) -> None:
    together, _ = opened(project, quality="none")
    decided = by_corpus(store_of(together).current(keys.DEDUP))
    assert [decided[name]["removed"] for name in ("web", "books")] == [0, 1]
    texts = [json.loads(line)["text"] for line in project.with_name("web.jsonl").read_text().splitlines()]
    with project.with_name("web.jsonl").open("a") as file:
        file.write(json.dumps({"text": texts[0]}) + "\n")
    for apart, lost in ((("web",), [0, 0]), (("books",), [1, 0]), (("web", "books"), [0, 0])):
        corpora = [{"dedup": False} if name in apart else {} for name in ("web", "books")]
        _, store = opened(project, *corpora, quality="none")
        decided = by_corpus(store.current(keys.DEDUP))
        assert [decided[name]["removed"] for name in ("web", "books")] == lost
        assert [decided[name]["documents"] for name in ("web", "books")] == [5, 4]


def test_documents_of_a_corpus_apart_that_quote_an_evaluation_set_are_removed(project: Path) -> None:
    exam = project.with_name("exam.txt").read_text()
    with project.with_name("books.jsonl").open("a") as file:
        file.write(json.dumps({"text": text(25, 900) + exam}) + "\n")
    _, store = opened(project, {}, {"dedup": False}, quality="none")
    decided = by_corpus(store.current(keys.DEDUP))["books"]
    assert (decided["kept"], decided["removed/contaminated"]) == (4, 1)


def test_variants_and_runs_change_the_rules_of_one_corpus(project: Path) -> None:
    variants = {"long": {"corpora": {"books": {"quality": {"min_doc_words": 40}}}}, "all": {"quality": "c4"}}
    opened(project, {}, {"quality": {"max_doc_words": None}}, variants=variants)
    base, every, long = load_all(project).values()
    assert base.quality == long.quality and long.rules("web").quality == base.quality
    assert long.rules("books").quality == base.quality.model_copy(
        update={"max_doc_words": None, "min_doc_words": 40}
    )
    assert every.rules("books").quality.model_dump() == PROFILES["c4"].model_dump()
    run = load(project, BASE, {"corpora": {"books": {"quality": "docs", "dedup": False}}})
    assert run.rules("books").quality.model_dump() == PROFILES["docs"].model_dump()
    assert [name for name in run.corpus_names if not run.rules(name).dedup] == ["books"]
    first = [differing({BASE: base, "other": other})[0] for other in (long, run)]
    assert first == [Quality] * 2
    apart = load(project, BASE, {"corpora": {"books": {"dedup": False}}})
    assert differing({BASE: base, "apart": apart})[0] is Dedup


def test_the_record_of_a_recipe_means_the_same_rules(project: Path) -> None:
    recipe, _ = opened(project, {"dedup": False}, {"quality": {"min_doc_words": 10}, "scrub": {"ip": "all"}})
    recorded = recipe.model_dump(mode="json", by_alias=True)
    again = Recipe.model_validate(recorded)
    for name in recipe.corpus_names:
        for ours, theirs in zip(recipe.rules(name)[:3], again.rules(name)[:3], strict=True):
            assert ours.model_dump() == theirs.model_dump()
        assert again.rules(name).dedup == recipe.rules(name).dedup
    assert non_defaults.of_recipe(recorded)["corpora"] == {
        "web": {"dedup": False},
        "books": {"quality": {"min_doc_words": 10}, "scrub": {"ip": "all"}},
    }


@pytest.mark.parametrize(
    ("own", "told"),
    [
        ({"quality": {"min_doc_wordz": 3}}, "corpora.1.quality: unknown key 'min_doc_wordz': did you mean"),
        ({"quality": {"min_doc_words": -3}}, "corpora.1.quality.min_doc_words: must be at least 0, not -3"),
        (
            {"quality": {"min_doc_words": 200_000}},
            r"corpora.1.quality: min_doc_words \(200000\) is above max_",
        ),
        ({"quality": "nice"}, "corpora.1.quality: unknown profile 'nice'"),
        (
            {"quality": {"filters": [{"python": "no.module:f", "version": "1"}]}},
            "corpora.1.quality.filters.0: ",
        ),
        ({"scrub": {"ip": "none"}}, "corpora.1.scrub.ip: must be 'public' or 'all', not 'none'"),
        ({"dedup": {"threshold": 0.9}}, "corpora.1.dedup: must be true or false"),
    ],
)
def test_a_wrong_rule_is_named_with_its_corpus(project: Path, own: dict[str, Any], told: str) -> None:
    with pytest.raises(RecipeError, match=f"^{project}: {told}"):
        opened(project, {}, own)


def test_a_wrong_rule_of_the_recipe_is_told_once(project: Path) -> None:
    with pytest.raises(RecipeError, match=r"^[^;]*: quality\.min_words: must be at least 0, not -1$"):
        opened(project, {}, {"quality": {"min_doc_words": 10}}, quality={"min_words": -1})
