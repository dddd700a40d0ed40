"""Thresholds and languages can change without the text being read again."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pipeline.sources.files import FilesConfig
from pipeline.stages.pii import PiiParams
from pipeline.stages.quality import PROFILES
from pipeline.steps.corpus.quality import reasons
from pipeline.store import keys
from pipeline.store.manifest import Version
from pipeline.store.store import Store
from tests.pipeline.steps.corpora import ENGINE, TEXTS
from tests.pipeline.steps.make import collect, judge, scrub
from tests.rows import jsonl

DOCS = PROFILES["docs"]
GERMAN = (
    "Die Klasse bündelt alle Aufrufe, die der Leser braucht, und sie merkt sich, was er zuletzt gelesen hat. "
)


class Observed:
    """The engine, and what it was asked to do."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def map(self, function: Callable, tasks: Sequence, *, what: str, **more: Any) -> Iterator:
        self.asked.append(what)
        return ENGINE.map(function, tasks, what=what, **more)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with one scrubbed corpus, `notes`, in several parts: English, and two documents in German."""
    store = Store(tmp_path / "store")
    path = tmp_path / "notes.jsonl"
    texts = [
        *TEXTS,
        GERMAN + "Sie ist schnell.",
        GERMAN + "Sie ist klein und der Name ist kurz, aber das Ergebnis bleibt gleich.",
    ]
    jsonl(path, *({"text": text} for text in texts))
    collect(store, ENGINE, "notes", FilesConfig(paths=(str(path),)), 60_000)
    scrub(store, ENGINE, "notes", PiiParams())
    assert len(store.current(keys.raw("notes")).parts) > 1
    return store


def files_of(version: Version, table: str) -> list[tuple[Path, int, int]]:
    return [
        (path, path.stat().st_mtime_ns, path.stat().st_ino)
        for path in (file.path for file in version.files(table))
    ]


def test_changing_a_threshold_judges_again_and_measures_nothing(store: Store) -> None:
    engine = Observed()
    before = judge(store, engine, "notes", DOCS)
    measured = store.current(keys.signals("notes"))
    files = files_of(measured, "signals")
    after = judge(store, engine, "notes", DOCS.model_copy(update={"min_doc_words": 600}))
    assert after.counts["kept"] < before.counts["kept"]
    assert engine.asked == ["corpora/notes/signals", "corpora/notes/quality", "corpora/notes/quality"]
    assert store.current(keys.signals("notes")).path == measured.path
    assert files_of(store.current(keys.signals("notes")), "signals") == files


def test_languages_are_detected_when_asked_for_and_once(store: Store) -> None:
    engine = Observed()
    judge(store, engine, "notes", DOCS)
    english = judge(store, engine, "notes", DOCS.model_copy(update={"languages": ("en",)}))
    both = judge(
        store,
        engine,
        "notes",
        DOCS.model_copy(update={"languages": ("en", "de"), "min_language_confidence": 0.4}),
    )
    assert engine.asked == [
        f"corpora/notes/{stage}" for stage in ("signals", "quality", "languages", "quality", "quality")
    ]
    assert english.counts["languages/de"] == english.counts["rejected/language"] == 2
    assert both.counts.get("rejected/language", 0) == 0


def test_the_reasons_add_up_and_name_documents(store: Store) -> None:
    verdicts = judge(
        store, ENGINE, "notes", DOCS.model_copy(update={"languages": ("en",), "min_doc_words": 600})
    )
    kept, *rejected = reasons(verdicts)
    assert (kept.rule, kept.documents) == (None, verdicts.counts["kept"])
    assert sum(reason.documents for reason in (kept, *rejected)) == verdicts.counts["documents"]
    assert sum(reason.share for reason in (kept, *rejected)) == pytest.approx(1)
    by_rule = {reason.rule: reason for reason in rejected}
    assert by_rule["language"].documents == 2
    assert by_rule["min_doc_words"].documents > 0
