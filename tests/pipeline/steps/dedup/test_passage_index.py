"""The index of passages: what is made again, what is found in it, and how long it stays."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pipeline.sources.files import FilesConfig
from pipeline.stages.pii import PiiParams
from pipeline.steps.dedup import passage_index
from pipeline.steps.dedup.passage_index import Match, Matcher, index
from pipeline.store import keys
from pipeline.store.cleanup import gc
from pipeline.store.forgotten import Forgotten, hashed
from pipeline.store.last_versions import LastVersions, RecipeName
from pipeline.store.manifest import Part, Version
from pipeline.store.params import DOCUMENT_SCHEMA
from pipeline.store.parquet import PartWriter, read_table
from pipeline.store.parts import PartTask, derive
from pipeline.store.store import Store
from pipeline.store.work import Work
from tests.corpora import CORPORA, needs_corpora
from tests.pipeline.steps.corpora import ENGINE, TEXTS
from tests.pipeline.steps.make import collect, scrub
from tests.pipeline.steps.stored import indexed_parts

NOTHING = Forgotten()


def scrubbed(store: Store, *files: Sequence[str], part_bytes: int = 20_000) -> Version:
    """The texts as a corpus of several parts."""
    source = store.root.with_name(f"{store.root.name}-source")
    source.mkdir(exist_ok=True)
    for number, texts in enumerate(files):
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        (source / f"{number}.jsonl").write_text(lines)
    collect(store, ENGINE, "books", FilesConfig(paths=("*.jsonl",)).anchored(source), part_bytes)
    return scrub(store, ENGINE, "books", PiiParams())


def matches(text: str, documents: Version, made: Version, forgotten: Forgotten = NOTHING) -> list[Match]:
    return list(Matcher([(documents, made)], 0.25, forgotten).matches(text))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return indexed_parts(monkeypatch, passage_index)


def test_a_new_file_of_a_corpus_adds_parts_and_leaves_the_others(tmp_path: Path, made: list[str]) -> None:
    store = Store(tmp_path / "store")
    before = index(store, ENGINE, scrubbed(store, TEXTS[:10], TEXTS[10:20]))
    assert sorted(made) == sorted(part.name for part in before.parts) and len(made) > 4
    made.clear()
    documents = scrubbed(store, TEXTS[:10], TEXTS[10:20], TEXTS[20:])
    after = index(store, ENGINE, documents)
    new = {part.name for part in after.parts} - {part.name for part in before.parts}
    assert set(made) == new and 0 < len(new) < len(after.parts)
    for text in (TEXTS[2], TEXTS[25]):
        (found,) = (one for one in matches(text, documents, after) if one.jaccard == 1)
        assert found.row["text"] == text


def test_an_index_stays_as_long_as_its_text(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    documents = scrubbed(store, TEXTS[:2])
    made = index(store, ENGINE, documents)
    raw = store.current(keys.raw("books"))
    assert {item.paths[0] for item in gc.find(store)} == {raw.path, documents.path, made.path}
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("name: mine")
    last = LastVersions(store.files, RecipeName("mine", str(recipe)))
    last.use(documents.key, documents.path.name)
    assert [item.paths[0] for item in gc.find(store)] == [raw.path]


def test_documents_without_text_are_in_no_passage_and_harm_no_other(tmp_path: Path) -> None:
    """A source delivers none, but a transform may leave one."""

    def written(task: PartTask, directory: Path) -> Part:
        rows = [{"id": f"{task.name}{place}", "text": text} for place, text in enumerate(parts[task.name])]
        with PartWriter(directory, task.name, {"documents": DOCUMENT_SCHEMA}) as writer:
            writer.write("documents", pa.RecordBatch.from_pylist(rows, DOCUMENT_SCHEMA))
        return Part(task.name, task.fingerprint, writer.files)

    parts = {"a": [""], "b": ["", TEXTS[0], "?!", "", TEXTS[1]]}
    store, work = Store(tmp_path), Work(keys.scrubbed("books"), "1", {}, {})
    documents = derive(store, ENGINE, work, [PartTask(name, name, (), 1) for name in parts], written)
    made = index(store, ENGINE, documents)
    assert made.counts["documents"] == 6
    found = [one.row["id"] for one in matches(TEXTS[1], documents, made) if one.jaccard == 1]
    assert found == ["b4"]


def test_a_forgotten_document_is_not_found_though_it_is_still_stored(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    documents = scrubbed(store, TEXTS[:3])
    made = index(store, ENGINE, documents)
    (found,) = (one for one in matches(TEXTS[1], documents, made) if one.jaccard == 1)
    forgotten = Forgotten((frozenset({hashed(found.row["id"])}),))
    assert found.row["id"] not in [one.row["id"] for one in matches(TEXTS[1], documents, made, forgotten)]


def test_a_document_that_is_a_part_of_the_text_is_found(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    short = " ".join(TEXTS[4].split()[40:100])
    documents = scrubbed(store, [short, TEXTS[9]])
    made = index(store, ENGINE, documents)
    (found,) = matches(TEXTS[4], documents, made)
    assert found.row["text"] == short and found.held > 0.95 and found.holds < 0.5


@pytest.mark.slow
@needs_corpora
def test_rewritten_paragraphs_of_articles_are_found_and_unrelated_ones_are_not(tmp_path: Path) -> None:
    """Of 2,073 articles, as `performance/near.py` measures it."""
    chooser = np.random.default_rng(3)
    shutil.copy(CORPORA / "enwiki.jsonl.zst", tmp_path)
    store = Store(tmp_path / "store")
    collect(store, ENGINE, "books", FilesConfig(paths=("*.zst",)).anchored(tmp_path), 128_000_000)
    documents = scrub(store, ENGINE, "books", PiiParams())
    made = index(store, ENGINE, documents)
    search = Matcher([(documents, made)], 0.25, NOTHING)
    articles = [row for file in documents.files("documents") for row in read_table(file).to_pylist()]
    places = [
        (row["id"], paragraph)
        for row in articles
        for paragraph in row["text"].split("\n")
        if 40 <= len(paragraph.split()) <= 120
    ]
    words = " ".join(row["text"] for row in articles[:200]).split()
    found = 0
    for place in chooser.choice(len(places), 200, replace=False).tolist():
        document, text = places[place]
        share = chooser.uniform(0.1, 0.2)
        replaced = [
            words[chooser.integers(len(words))] if chooser.random() < share else word for word in text.split()
        ]
        hits = {one.row["id"]: one for one in search.matches(" ".join(replaced))}
        found += document in hits
    assert found >= 198
    unrelated = " ".join(TEXTS).split()
    starts = chooser.integers(len(unrelated) - 80, size=200).tolist()
    assert not [one for start in starts for one in search.matches(" ".join(unrelated[start : start + 80]))]
