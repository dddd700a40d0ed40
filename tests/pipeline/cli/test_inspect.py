"""`python -m pipeline inspect`: what was removed, why, and how it begins."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from pipeline.cli import main
from pipeline.recipe.recipe import RECIPES
from pipeline.sources.documents import document_id, own_id
from pipeline.sources.files import FilesConfig
from pipeline.stages.dedup import DedupParams
from pipeline.stages.pii import PiiParams
from pipeline.stages.quality import PROFILES
from pipeline.steps.corpus.ingest import collect
from pipeline.steps.corpus.quality import judge
from pipeline.steps.corpus.scrub import scrub
from pipeline.steps.dedup.dedup import deduplicate
from pipeline.store.engines.local import LocalEngine
from pipeline.store.store import Store

PLAIN, ENGINE = PROFILES["plain"], LocalEngine(1)
TEXT = " ".join(f"word{number}" for number in range(200))
CORPORA = {
    "notes": [
        {"id": "short", "text": "Ask jane.doe@example.org.\x1b[2J"},
        {"id": "long", "text": TEXT + " and more"},
    ],
    "letters": [
        {"id": "brief", "text": "Dear all."},
        {"id": "copy", "text": TEXT + " and more"},
        {"id": "almost", "text": TEXT},
    ],
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe of two corpora and a store in which they went through dedup."""
    directory = tmp_path_factory.mktemp("project")
    recipe = yaml.safe_load((RECIPES / "default.yaml").read_text())
    recipe["corpora"] = [
        {"name": name, "source": {"kind": "files", "paths": [f"{name}.jsonl"]}} for name in CORPORA
    ]
    recipe |= {"raw": {"part_bytes": 1_000_000}, "quality": "plain", "scrub": {}, "dedup": {}}
    (directory / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    store = Store(directory / "store")
    for name, documents in CORPORA.items():
        scrubbed(store, directory / f"{name}.jsonl", *documents)
        judge(store, ENGINE, name, PLAIN)
    deduplicate(store, ENGINE, list(CORPORA), DedupParams())
    return directory


def scrubbed(store: Store, path: Path, *documents: dict[str, str]) -> None:
    """Stores a corpus of these documents, named as the file, up to scrubbing."""
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))
    source = FilesConfig(paths=(path.name,)).anchored(path.parent)
    collect(store, ENGINE, path.stem, source, part_bytes=1_000_000)
    scrub(store, ENGINE, path.stem, PiiParams())


@pytest.fixture
def inspect(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    monkeypatch.setenv("GROUNDWORK_RECIPE", str(project / "recipe.yaml"))
    monkeypatch.setenv("GROUNDWORK_STORE", str(project / "store"))

    def run(*arguments: str) -> tuple[int, str]:
        status = main(["inspect", *arguments])
        said = capsys.readouterr()
        return status, said.err if status else said.out

    return run


def named(corpus: str, name: str) -> str:
    return f"{corpus} {document_id(corpus, own_id(name))}"


def test_a_rule_shows_its_documents_with_the_signal_the_threshold_and_the_scrubbed_text(
    inspect: Callable[..., tuple[int, str]],
) -> None:
    status, said = inspect("min_words")
    assert status == 0
    entries = said.strip().split("\n\n")
    assert entries == [
        f"{named('notes', 'short')}\nwords = 2, min_words = 128\n    Ask "
        f"[EMAIL].\N{REPLACEMENT CHARACTER}[2J",
        f"{named('letters', 'brief')}\nwords = 2, min_words = 128\n    Dear all.",
    ]


def test_without_a_rule_it_counts_what_each_rule_of_each_corpus_rejected(
    inspect: Callable[..., tuple[int, str]],
) -> None:
    def row(corpus: str, name: str) -> list[str]:
        return [corpus, "min_words", "1", share[corpus], document_id(corpus, own_id(name))]

    share = {"notes": "50.0%", "letters": "33.3%"}
    status, said = inspect()
    lines = [line.split() for line in said.splitlines()]
    assert (status, lines[0]) == (0, ["corpus", "verdict", "documents", "share", "examples"])
    assert lines[1:] == [
        ["notes", "kept", "1", "50.0%"],
        row("notes", "short"),
        ["letters", "kept", "2", "66.7%"],
        row("letters", "brief"),
    ]
    assert [line.split() for line in inspect("--corpus", "notes")[1].splitlines()] == lines[:3]


def test_a_document_in_another_language_is_shown_with_what_was_detected(
    project: Path, inspect: Callable[..., tuple[int, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = yaml.safe_load((project / "recipe.yaml").read_text())
    recipe["quality"] = {"profile": "none", "languages": ["en", "fr"]}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    monkeypatch.setenv("GROUNDWORK_RECIPE", str(tmp_path / "recipe.yaml"))
    store = Store(tmp_path / "store")
    texts = {
        "en": "The committee met again to hear what the engineers had found.",
        "de": "Der Ausschuss hörte noch einmal, was die Leute gefunden hatten.",
    }
    scrubbed(store, tmp_path / "notes.jsonl", *({"id": name, "text": text} for name, text in texts.items()))
    judge(store, ENGINE, "notes", PROFILES["none"].model_copy(update={"languages": ("en", "fr")}))
    monkeypatch.setenv("GROUNDWORK_STORE", str(store.root))
    status, said = inspect("language", "--corpus", "notes")
    assert status == 0
    assert said.startswith(f"{named('notes', 'de')}\nlanguage = de, language_confidence = ")
    assert f", languages = en fr, min_language_confidence = 0.5\n    {texts['de']}\n" in said


def test_one_corpus_and_so_many_documents(inspect: Callable[..., tuple[int, str]]) -> None:
    assert named("letters", "brief") in inspect("min_words", "--corpus", "letters")[1]
    assert inspect("min_words", "--corpus", "letters")[1].count("min_words") == 1
    assert inspect("min_words", "--limit", "1")[1].count("min_words") == 1


@pytest.mark.parametrize(("reason", "removed"), [("exact", "copy"), ("near", "almost")])
def test_a_duplicate_is_shown_beside_the_document_that_stays(
    reason: str, removed: str, inspect: Callable[..., tuple[int, str]]
) -> None:
    status, said = inspect(reason)
    assert status == 0
    assert said.startswith(f"removed {named('letters', removed)}: {reason}, Jaccard ")
    assert f"\nkept {named('notes', 'long')}, which stands for 3 documents\n    word0 word1" in said
    assert said.count("removed") == 1


def test_a_rule_that_rejected_nothing_says_so(inspect: Callable[..., tuple[int, str]]) -> None:
    assert inspect("max_words") == (0, "max_words: no document of notes, letters\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["too_dull"], "error: RULE: unknown 'too_dull'; choose from language, min_words"),
        (
            ["min_words", "--corpus", "diaries"],
            "error: --corpus: unknown 'diaries'; choose from notes, letters",
        ),
        (["min_words", "--limit", "0"], "error: --limit 0"),
    ],
)
def test_a_mistake_is_named(arguments: list[str], says: str, inspect: Callable[..., tuple[int, str]]) -> None:
    status, said = inspect(*arguments)
    assert status == 2
    assert said.startswith(says)


def test_text_newer_than_the_verdicts_is_not_shown_with_them(
    project: Path, inspect: Callable[..., tuple[int, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(project / "recipe.yaml", tmp_path)
    monkeypatch.setenv("GROUNDWORK_RECIPE", str(tmp_path / "recipe.yaml"))
    store = Store(tmp_path / "store")
    for words in ("one", "two"):
        scrubbed(store, tmp_path / "notes.jsonl", {"id": "a", "text": f"{words} {TEXT}"})
        if words == "one":
            judge(store, ENGINE, "notes", PLAIN)
    monkeypatch.setenv("GROUNDWORK_STORE", str(store.root))
    status, said = inspect("min_words", "--corpus", "notes")
    assert (status, said) == (
        2,
        "error: corpora/notes/signals has not been made for this recipe yet, the newest version has other "
        "inputs (corpora/notes/scrubbed): materialize corpora/notes/quality first\n",
    )
