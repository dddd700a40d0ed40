"""A recipe with chat corpora: the stages work on marked texts, and what would cut messages passes them by."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.plugins import loading
from pipeline.recipe.loading import load_recipe
from pipeline.recipe.recipe import Recipe, RecipeError
from pipeline.recipe.sections import ShardParams
from pipeline.stages.quality import PROFILES
from pipeline.steps.recipe_versions import store_of
from pipeline.store import keys
from pipeline.store.errors import PipelineError
from pipeline.store.parts import kept_documents
from pipeline.store.store import Store
from tests.integration.project import TRAINING
from tests.pipeline.plugins.code import write
from tests.pipeline.steps.corpora import ENGINE, TEXTS
from tests.pipeline.steps.make import tokenize, tokenizer, up_to_dedup
from tests.rows import jsonl
from trainer.system.paths import STORE_VARIABLE

EXAM = "Which of these words is not one of the words of this short exam at all, or of any other one?"
SHARDS = ShardParams(validation_fraction=0.3, longest=200)
RECIPE: dict[str, Any] = {
    "name": "mine",
    "corpora": [
        {"name": "texts", "source": {"kind": "files", "paths": ["texts.jsonl"]}},
        {"name": "talks", "source": {"kind": "files", "paths": ["talks.jsonl"], "format": "chat"}},
        {"name": "pairs", "source": {"kind": "files", "paths": ["pairs.jsonl"], "format": "preferences"}},
    ],
    "quality": {"profile": "gopher", "min_doc_words": 30},
    "edits": {"rules": ["c4", "quotes"]},
    "decontamination": {"sets": [{"name": "exam", "source": {"kind": "files", "paths": ["exam.txt"]}}]},
    "tokenizer": {"vocab_size": 400, "chat": True},
    "training": TRAINING,
}


def talk(question: str, answer: str) -> dict[str, Any]:
    said = [("user", question), ("assistant", answer)]
    return {"messages": [{"role": role, "content": content} for role, content in said]}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    talks = [talk(f"> quoted {n}\nAnd number {n}?", f"Short {n}\n") for n in range(20)]
    talks += [
        talk("Write to jane.doe@gmail.com", "212-555-0187"),
        talk("Number 3", f"Well: {EXAM}"),
        talks[4],
    ]
    pairs = [{"prompt": f"Is {n} right?", "chosen": f"Yes, {n}.", "rejected": f"No {n}"} for n in range(9)]
    for name, rows in (("texts", [{"text": text} for text in TEXTS[:9]]), ("talks", talks), ("pairs", pairs)):
        jsonl(tmp_path / f"{name}.jsonl", *rows)
    (tmp_path / "exam.txt").write_text(EXAM)
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "store"))
    return tmp_path / "recipe.yaml"


def made(project: Path, **changes: Any) -> tuple[Recipe, Store]:
    """The recipe and its store after the stages up to the tokenizer."""
    project.write_text(yaml.safe_dump(RECIPE | changes))
    recipe = load_recipe(project)
    store = store_of(recipe)
    up_to_dedup(store, ENGINE, recipe)
    tokenizer(store, ENGINE, recipe.name, recipe.corpus_names, recipe.tokenizer, 0.3)
    return recipe, store


def texts(store: Store, corpus: str) -> list[str]:
    return [text for batch in kept_documents(store, corpus) for text in batch.column("text").to_pylist()]


def test_scrubbing_decontamination_and_dedup_work_and_rules_for_lines_and_pages_do_not(project: Path) -> None:
    recipe, store = made(project)
    none = PROFILES["none"].model_dump()
    assert all(recipe.rules(name).quality.model_dump() == none for name in ("talks", "pairs"))
    assert recipe.is_edited("texts") and not recipe.is_edited("talks")
    found = texts(store, "talks")
    assert "\x1euser\x1f> quoted 7\nAnd number 7?\x1eassistant\x1fShort 7\n" in found
    assert "\x1euser\x1fWrite to [EMAIL]\x1eassistant\x1f[PHONE]" in found
    assert len(found) == 21 and not any(EXAM in text for text in found)
    assert store.current(keys.contamination("talks")).counts["contaminated"] == 1
    assert len(texts(store, "pairs")) == 9
    for corpus, documents in (("talks", 21), ("pairs", 9)):
        counts = tokenize(store, ENGINE, corpus, SHARDS).counts
        assert counts["train_documents"] + counts["validation_documents"] == documents


def test_settings_of_the_corpus_itself_are_taken_and_edits_refused(project: Path) -> None:
    corpora = [dict(corpus) for corpus in RECIPE["corpora"]]
    corpora[1]["quality"] = "gopher"
    project.write_text(yaml.safe_dump(RECIPE | {"corpora": corpora}))
    assert load_recipe(project).rules("talks").quality.model_dump() == PROFILES["gopher"].model_dump()
    corpora[1]["edits"] = {"rules": ["quotes"]}
    project.write_text(yaml.safe_dump(RECIPE | {"corpora": corpora}))
    with pytest.raises(
        RecipeError, match=r"talks.*edits cut lines, and with them messages|corpora\.1.*edits cut"
    ):
        load_recipe(project)


MODULE = """
    from pipeline.plugins import document_transform

    @document_transform
    def polite(document):
        return document.text.replace("Short", "Shortly")

    @document_transform
    def unmarked(document):
        return " ".join(document.text.split())
"""


def test_a_transform_may_change_what_is_said_but_not_the_marks(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(project.parent))
    loading.load.cache_clear()
    write(project.parent, "mine.talks", MODULE)
    one = {"python": "mine.talks:polite", "version": "1", "corpora": ["talks"]}
    _, store = made(project, transforms=[one])
    assert "\x1euser\x1f> quoted 7\nAnd number 7?\x1eassistant\x1fShortly 7\n" in texts(store, "talks")
    assert tokenize(store, ENGINE, "talks", SHARDS).counts["train_documents"]
    _, store = made(project, transforms=[one | {"python": "mine.talks:unmarked"}])
    with pytest.raises(PipelineError, match="code of your own must keep the marks"):
        tokenize(store, ENGINE, "talks", SHARDS)
