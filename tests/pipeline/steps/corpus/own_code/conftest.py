"""A module of the user's, and a corpus that its source gave."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.plugins import loading
from pipeline.sources.user_code import PythonConfig
from pipeline.stages.pii import PiiParams
from pipeline.store import keys
from pipeline.store.store import Store
from tests.pipeline.plugins.code import write
from tests.pipeline.steps.corpora import ENGINE
from tests.pipeline.steps.make import collect, scrub

MODULE = """
    import os
    import time
    from pathlib import Path

    from pipeline.plugins import Document, batch_filter, document_filter, document_transform
    from pydoc_data.topics import topics

    CALLS = Path(__file__).with_name("calls")

    def called():
        with CALLS.open("a") as file:
            file.write(f"{os.getpid()}\\n")

    class Chapters:
        def __init__(self, many=30, broken_after=None):
            self.many, self.broken_after = many, broken_after

        def fingerprint(self):
            return str(self.many)

        def documents(self):
            texts = [text for _, text in sorted(topics.items()) if len(text) > 2000]
            for number, text in enumerate(texts[: self.many]):
                if number == self.broken_after:
                    raise OSError("the server went away")
                yield Document(f"chapter-{number}", text, metadata={"number": number})

    class Dated:
        def __init__(self, since):
            self.since = since

        def fingerprint(self):
            return self.since - 1

        def documents(self):
            yield Document("a", "A text.")

    def once(many=3):
        called()
        for number in range(many):
            yield Document(str(number), f"Document {number} of the source.")

    def odd_documents(**values):
        yield Document(**{"id": "a", "text": "A text.", **values})

    def leaves():
        yield Document("a", "A text.")
        raise SystemExit(3)

    def tells():
        yield Document("a", "A text.")
        raise ValueError("no line of john@example.com, 030 7311343 in 'A text.' was read")

    @document_filter
    def even(document, of=2):
        called()
        return document.metadata["number"] % of == 0, "odd"

    @batch_filter(signals={"length": int})
    class Long:
        def signals(self, documents):
            called()
            return {"length": [len(text) for text in documents["text"].to_pylist()]}

        def keep(self, signals, least=3000):
            return signals["length"] >= least

    @document_filter
    def fails_on(document, numbers=()):
        if document.metadata["number"] in numbers:
            raise ValueError(document.text)
        return True

    @document_filter
    def slow(document, until):
        called()
        while len(CALLS.read_text().splitlines()) > until and not Path(f"{CALLS}.go").exists():
            time.sleep(0.01)
        return len(document.text) % 3 > 0

    @document_transform
    def shout(document, fails_on=()):
        if document.metadata["number"] in fails_on:
            raise ValueError("unshoutable")
        return document.text.upper()

    def same(documents):
        return documents["text"]
"""


@pytest.fixture(autouse=True)
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How often the user's code was called since the last time somebody asked."""
    monkeypatch.syspath_prepend(str(tmp_path))
    loading.load.cache_clear()
    write(tmp_path, "own", MODULE)
    path = tmp_path / "calls"

    def count() -> int:
        lines = path.read_text().splitlines() if path.exists() else []
        path.write_text("")
        return len(lines)

    return count


def source(version: str = "1", name: str = "Chapters", **params: object) -> PythonConfig:
    return PythonConfig(object=f"own:{name}", version=version, params=params)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with one scrubbed corpus, `notes`, in several parts, from a source of the user's."""
    store = Store(tmp_path / "store")
    collect(store, ENGINE, "notes", source(), 40_000)
    scrub(store, ENGINE, "notes", PiiParams())
    assert len(store.current(keys.raw("notes")).parts) > 3
    return store
