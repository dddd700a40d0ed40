"""Documents that were forgotten: the store becomes what it would be without them."""

import json
import random
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from pipeline.cli import main
from pipeline.sources.documents import document_id, own_id
from pipeline.sources.stored import StoredConfig
from pipeline.stages.dedup import DedupParams
from pipeline.steps import checks
from pipeline.steps.corpus.ingest import Raw
from pipeline.steps.forget.to_forget import find
from pipeline.steps.lineage.checkpoints import LineageError
from pipeline.store import keys
from pipeline.store.cleanup.gc import published
from pipeline.store.draft import Draft
from pipeline.store.errors import PipelineError
from pipeline.store.forgotten import forget
from pipeline.store.keys import Key
from pipeline.store.manifest import Part, Version
from pipeline.store.parquet import read_table
from pipeline.store.store import Store
from pipeline.store.work import Work
from tests.pipeline.steps.corpora import ENGINE, TEXTS
from tests.pipeline.steps.forgetting import CORPORA, PART_BYTES, Made, ids, ids_in, texts
from tests.pipeline.steps.make import collect, deduplicate, tokenizer
from tests.pipeline.steps.training.test_plan import recipe
from tests.rows import jsonl, stored_rows
from tests.traces import END, bytes_with, pieces
from trainer.system.paths import STORE_VARIABLE

LONG = [key for key in CORPORA["second"]["large"] if key.startswith("long")]  # each alone in its part


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a tokenizer."""
    project = Made(tmp_path_factory.mktemp("frozen"), None)
    for corpus in CORPORA:
        project.read(corpus)
    store = project.store
    deduplicate(store, ENGINE, list(CORPORA), DedupParams())
    return tokenizer(store, ENGINE, "mine", list(CORPORA), recipe().tokenizer, 0.2).directory()


def drawn(seed: int) -> tuple[list[list[str]], list[str]]:
    """Two to four requests, one after the other, and the corpora that are left. The last one is of a survivor
    of dedup, the only document of a part, or the corpus `second`.
    """
    chooser = random.Random(seed)
    found = [chooser.sample(list(texts()), chooser.randint(1, 4)) for _ in range(chooser.randint(1, 3))]
    last = [["0"], [chooser.choice(LONG)], list(CORPORA["second"]["large"])][seed % 3]
    return [*found, last], ["first"] if seed % 3 == 2 else list(CORPORA)


def traces(named: Collection[str], tokenizer: Path) -> tuple[list[bytes], list[bytes]]:
    """The ids of documents, and what only they hold: lines, and these as they are encoded in shards."""
    encoder = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    others = "".join(text for key, text in texts().items() if key not in named)
    lines = [line for key in named for line in pieces(texts()[key], others)]
    runs = [encoder.encode(line).ids[END:-END] for line in lines]
    encoded = [np.array(run, np.uint16).tobytes() for run in runs if encoder.decode(run) not in others]
    names = [one.encode() for found in ids(named).values() for one in found]
    return names, [*map(str.encode, lines), *encoded]


@contextmanager
def killed(after: int) -> Iterator[None]:
    """Whoever puts the part with this number is killed."""
    put, written = Draft.put, count(1)

    def killing(draft: Draft, part: Part) -> None:
        put(draft, part)
        if next(written) == after:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(Draft, "put", killing)
        yield


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=() if seed == 1 else pytest.mark.slow) for seed in range(100)]
)
def test_a_store_is_what_it_would_be_if_it_had_never_had_the_documents(
    tmp_path: Path, frozen: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the weights; and once it is cleaned up, no byte of them is left in it."""
    requests, corpora = drawn(seed)
    had = Made(tmp_path / "had", frozen)
    monkeypatch.setenv(STORE_VARIABLE, str(had.store.root))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    without = {one for named in requests for one in named}
    names, content = traces(without, frozen)
    if seed % 2:
        had.trained()
        assert all(bytes_with(had.store.root, trace) for trace in names)
        assert len(bytes_with(had.store.root, *content)) > 2
    for named in requests:
        if seed % 2:
            assert main(["forget", *named, "--reason", "asked for", "--yes"]) == 0
        else:
            had.forget(*named)
        if seed % 5:
            with killed(random.Random(seed).randint(1, 12)):
                had.made(corpora)
    if seed % 4 > 1:
        check_a_deletion(had.store, names)
    found = had.trained(corpora)
    check_a_deletion(had.store, names)
    assert not bytes_with(had.store.root, *names, *content)
    assert had.trained(corpora) == found
    assert len(list(had.store.root.glob("runs/*/config.yaml"))) == 1
    assert found == Made(tmp_path / "never", frozen, without).trained(corpora)


def check_a_deletion(store: Store, names: list[bytes]) -> None:
    """Whatever goes names a document or was made from what goes."""
    there = [
        store.open(path.parent.relative_to(store.root).as_posix(), path.name)
        for path in published(store.files)
    ]
    naming = {one.path for one in there if bytes_with(one.path, *names)}
    assert main(["gc", "--forgotten"]) == 0
    gone = [one for one in there if not one.path.exists()]
    made = {(one.key, one.data_version) for one in gone}
    for one in gone:
        inputs = one.manifest["inputs"].items()
        assert one.path in naming or any(
            Key.from_path(name).is_decided_part or (name, it) in made for name, it in inputs
        )
    assert main(["verify"]) == 0


def test_a_long_document_is_alone_in_its_part(tmp_path: Path) -> None:
    raw = Made(tmp_path, None).read("second")
    alone = [found for path in raw.files("documents") if len(found := read_table(path)) == 1]
    assert {table["id"][0].as_py() for table in alone} >= set(ids(LONG)["second"])


def test_the_duplicate_of_a_forgotten_survivor_comes_back(tmp_path: Path, frozen: Path) -> None:
    store = Made(tmp_path, frozen)
    store.made()
    (late,), (survivor,) = ids(["late"])["second"], ids(["0"])["first"]
    assert kept(store)[late] == (False, survivor)
    store.forget("0")
    store.made()
    assert kept(store)[late] == (True, None) and survivor not in kept(store)
    store.forget("late")
    store.made()
    assert late not in kept(store)


def kept(store: Made) -> dict[str, tuple[bool, str | None]]:
    """By document whether dedup kept it, and of what it is a duplicate."""
    files = Store(store.directory / "store").current(keys.DEDUP).files("decisions")
    rows = [row for path in files for row in read_table(path).to_pylist()]
    return {row["id"]: (row["keep"], row["duplicate_of"]) for row in rows}


def test_forgetting_is_no_loss_for_the_check_and_leaves_no_row(tmp_path: Path) -> None:
    store = Made(tmp_path, None)
    before = ids_in(store.read("first"))
    store.forget("3", "short 1", "second 23")
    raw = store.read("first")
    assert before - ids_in(raw) == set(ids(["3", "short 1"])["first"])
    assert raw.counts["set_aside/forgotten"] == 2
    finding = checks.little_set_aside(checks.Subject(raw, store.store, recipe()))
    assert finding.message.startswith("0 of 20 rows")
    assert not stored_rows(raw, "rejects")


def test_only_what_lost_a_document_is_read_again(tmp_path: Path) -> None:
    store = Made(tmp_path, None)
    parts = {part.name: part for part in store.read("first").parts}
    other = store.read("second")
    for named in ("short 1", "short 2", "3"):
        store.forget(named)
        found = {part.name: part for part in store.read("first").parts}
        lost = {name.partition(".")[0] for name, part in found.items() if parts.get(name) != part}
        assert len(lost) == 1
        parts = found
    assert store.read("second").path == other.path


def last_read(store: Made) -> Version | Work:
    return Raw("first", store.config("first"), PART_BYTES).work(store.store)


def test_a_request_whose_folder_is_deleted_is_taken_back(tmp_path: Path) -> None:
    project = Made(tmp_path, None)
    before = project.read("first")
    project.forget("0")
    assert project.read("first").data_version != before.data_version
    versions = set(published(project.store.files))
    shutil.rmtree(project.store.root / keys.FORGOTTEN)
    assert project.read("first").path == before.path
    assert set(published(project.store.files)) == versions  # nothing was made again


def test_a_version_that_holds_a_forgotten_document_is_no_longer_meant(tmp_path: Path) -> None:
    store = Made(tmp_path, None)
    store.read("first")
    store.forget("3")
    assert not isinstance(last_read(store), Version)
    raw = store.read("first")
    assert isinstance(found := last_read(store), Version) and found.path == raw.path


def test_a_reading_that_was_killed_goes_on_without_the_documents(tmp_path: Path, frozen: Path) -> None:
    store = Made(tmp_path / "had", frozen)
    store.made()
    store.forget("3", "12")
    with killed(2):
        store.made()
        raise AssertionError("it was not killed")
    store.forget("5")
    assert store.made() == Made(tmp_path / "never", frozen, ["3", "12", "5"]).made()


def test_what_was_forgotten_before_is_told_from_what_is_new(tmp_path: Path) -> None:
    store = Made(tmp_path, None)
    store.read("first")
    folder = tmp_path / "web"
    folder.mkdir()
    address = "https://example.org/page"
    rows = [{"id": name, "text": TEXTS[28 + n], "url": address * n} for n, name in enumerate(("a", "page"))]
    jsonl(folder / "pages.jsonl", *rows)
    collect(store.store, ENGINE, "web", store.config("web"), PART_BYTES)
    (page,), other = ids_in_web(store, "page"), ids_in_web(store, "a")
    forget(store.store.files, {"web": [page]}, "asked for", named=[address])
    for name in (page, "page", address):
        found = find(store.store, [name])
        assert found.documents == {} and {*found.earlier} == set(found.held) == {name}
    mixed = find(store.store, ["page", "3", "web"])
    assert mixed.documents == {"web": other, "first": set(ids(["3"])["first"])}
    assert {*mixed.earlier} == {"page"}
    again = find(store.store, ["page"], retrain_tokenizer=True)
    assert again.documents == {"web": {page}} and not again.earlier
    for path in published(store.store.files):
        shutil.rmtree(path)
    for name in (page, "page", address):
        found = find(store.store, [name])
        assert found.earlier[name].request.reason == "asked for" and not found.held
    with pytest.raises(LineageError, match="'never' is not the id or the URL"):
        find(store.store, ["page", "never"])


def ids_in_web(store: Made, name: str) -> set[str]:
    return {document_id("web", own_id(name))} & ids_in(next(store.store.newest_first(keys.raw("web"))))


def test_a_corpus_of_which_all_was_forgotten_says_so(tmp_path: Path, frozen: Path) -> None:
    store = Made(tmp_path / "had", frozen)
    store.made()
    store.forget(*(key for texts in CORPORA["second"].values() for key in texts))
    with pytest.raises(PipelineError, match=r"corpus 'second' is empty: .*\(forgotten 12\)\. Take it out of"):
        store.read("second")
    assert store.made(["first"]) == Made(tmp_path / "never", frozen).made(["first"])


def test_a_stored_corpus_that_holds_a_forgotten_document_is_refused(tmp_path: Path) -> None:
    store = Made(tmp_path, None)
    stored = StoredConfig(path=str(store.read("first").path))
    assert collect(store.store, ENGINE, "first", stored, PART_BYTES).counts["documents"] == 22
    store.forget("3")
    with pytest.raises(PipelineError, match="holds documents that were removed"):
        collect(store.store, ENGINE, "first", stored, PART_BYTES)


def test_every_recipe_obeys_whatever_its_settings(tmp_path: Path) -> None:
    store = Made(tmp_path, None)
    store.read("first")
    store.forget("3")
    (document,) = ids(["3"])["first"]
    for part_bytes in (PART_BYTES, 1_000_000):
        raw = collect(store.store, ENGINE, "first", store.config("first"), part_bytes)
        assert document not in ids_in(raw) and len(ids_in(raw)) == 21


def test_a_document_is_named_by_its_ids_its_url_or_its_corpus(tmp_path: Path) -> None:
    store = Made(tmp_path, None)
    store.read("first")
    (tmp_path / "web").mkdir()
    page = {"id": "page", "text": TEXTS[29], "url": "https://example.org/page"}
    (tmp_path / "web" / "pages.jsonl").write_text(json.dumps(page) + "\n")
    collect(store.store, ENGINE, "web", store.config("web"), PART_BYTES)
    document = document_id("web", own_id("page"))
    for name in (document, "page", "https://example.org/page", "web"):
        assert find(store.store, [name]).documents == {"web": {document}}
    both = find(store.store, ["page", "3"]).documents
    assert both == {"web": {document}, "first": set(ids(["3"])["first"])}
    with pytest.raises(LineageError, match=r"example\.org/other' is not the id or the URL"):
        find(store.store, ["page", "https://example.org/other"])
