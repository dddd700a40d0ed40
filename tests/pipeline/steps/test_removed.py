"""Documents that were removed from a store: it becomes what it would be without them."""

import json
import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.sources.documents import document_id, own_id
from pipeline.sources.files import FilesConfig
from pipeline.sources.stored import StoredConfig
from pipeline.stages.dedup import DedupParams
from pipeline.stages.pii import PiiParams
from pipeline.stages.quality import PROFILES
from pipeline.stages.tokenizer import ExistingTokenizer
from pipeline.steps import checks
from pipeline.steps.corpus.ingest import CorpusError, collect, last_read
from pipeline.steps.corpus.quality import judge
from pipeline.steps.corpus.scrub import scrub
from pipeline.steps.dedup.dedup import deduplicate
from pipeline.steps.lineage.checkpoints import LineageError
from pipeline.steps.lineage.removal import find
from pipeline.steps.tokens.shards import tokenize
from pipeline.steps.tokens.tokenizer import tokenizer
from pipeline.store import keys
from pipeline.store.draft import Draft
from pipeline.store.manifest import Part, Version
from pipeline.store.parquet import read_table
from pipeline.store.removed import remove
from pipeline.store.store import Store
from tests.pipeline.steps.corpora import ENGINE, TEXTS
from tests.pipeline.steps.training.test_plan import HELD_OUT, recipe

PART_BYTES = 12_000
Texts = dict[str, str]  # by the id that the source gives
# `late` is nearly `0`, of which dedup keeps one, and the last of a corpus are in a small file of their own
CORPORA: dict[str, dict[str, Texts]] = {
    "first": {
        "large": {str(number): text[:3000] for number, text in enumerate(TEXTS[:18])},
        "small": {f"short {number}": text[:2000] for number, text in enumerate(TEXTS[18:22])},
    },
    "second": {
        "large": {f"second {number}": text[:3000] for number, text in enumerate(TEXTS[22:30])}
        | {"late": TEXTS[0][:2990] + " indeed"}
    },
}


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a tokenizer."""
    project = Made(tmp_path_factory.mktemp("frozen"), None)
    for corpus in CORPORA:
        project.read(corpus)
    store = project.store
    deduplicate(store, ENGINE, list(CORPORA), DedupParams())
    return tokenizer(store, "mine", list(CORPORA), recipe().tokenizer, 0.2).directory()


@dataclass
class Made:
    """A store and its sources, which lack the documents with the ids in `without`."""

    directory: Path
    tokenizer: Path | None
    without: Collection[str] = ()

    @property
    def store(self) -> Store:
        return Store(self.directory / "store")

    def config(self, corpus: str) -> FilesConfig:
        return FilesConfig(paths=(f"{corpus}/*.jsonl",)).anchored(self.directory)

    def read(self, corpus: str) -> Version:
        folder = self.directory / corpus
        folder.mkdir(exist_ok=True, parents=True)
        for name, texts in CORPORA[corpus].items():
            rows = [{"id": key, "text": text} for key, text in texts.items() if key not in self.without]
            path, written = folder / f"{name}.jsonl", "".join(json.dumps(row) + "\n" for row in rows)
            if not path.exists():
                path.write_text(written)
        raw = collect(self.store, ENGINE, corpus, self.config(corpus), PART_BYTES)
        scrub(self.store, ENGINE, corpus, PiiParams())
        judge(self.store, ENGINE, corpus, PROFILES["docs"])
        return raw

    def made(self, corpora: Collection[str] = tuple(CORPORA)) -> dict[str, str]:
        """Everything up to the shards: the data version of each key."""
        store = self.store
        for corpus in corpora:
            self.read(corpus)
        deduplicate(store, ENGINE, list(corpora), DedupParams())
        assert self.tokenizer is not None
        tokenizer(store, "mine", list(corpora), ExistingTokenizer(source=str(self.tokenizer)), 0.2)
        for corpus in corpora:
            tokenize(store, ENGINE, corpus, HELD_OUT)
        read = [key(corpus) for corpus in corpora for key in (keys.raw, keys.scrubbed, keys.quality)]
        shards = [keys.token_shards(corpus) for corpus in corpora]
        return Store(store.root).data_versions([*read, keys.DEDUP, *shards])

    def forget(self, *named: str) -> None:
        remove(self.store.files, ids(named), "asked for")


def ids(named: Collection[str]) -> Mapping[str, list[str]]:
    return {
        corpus: found
        for corpus, files in CORPORA.items()
        if (
            found := [
                document_id(corpus, own_id(key)) for texts in files.values() for key in texts if key in named
            ]
        )
    }


def ids_in(version: Version) -> set[str]:
    return {
        one
        for path in version.files("documents")
        for one in read_table(path, columns=["id"])["id"].to_pylist()
    }


def drawn(seed: int) -> list[list[str]]:
    """One to three removals, one after the other."""
    chooser = random.Random(seed)
    everything = [key for files in CORPORA.values() for texts in files.values() for key in texts]
    found = [chooser.sample(everything, chooser.randint(1, 4)) for _ in range(chooser.randint(1, 3))]
    return [*found, *([["0"]] if seed % 3 == 0 else [])]


@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 100))]
)
def test_a_store_is_what_it_would_be_if_it_had_never_had_the_documents(
    tmp_path: Path, frozen: Path, seed: int
) -> None:
    removals = drawn(seed)
    store = Made(tmp_path / "had", frozen)
    if seed % 2:
        store.made()
    for named in removals:
        store.forget(*named)
        if seed % 5:
            found = store.made()
    found = store.made()
    without = {one for named in removals for one in named}
    assert found == Made(tmp_path / "never", frozen, without).made()


def test_the_duplicate_of_a_removed_survivor_comes_back(tmp_path: Path, frozen: Path) -> None:
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


def test_removal_is_no_loss_for_the_check_and_leaves_no_row(tmp_path: Path) -> None:
    store = Made(tmp_path, None)
    before = ids_in(store.read("first"))
    store.forget("3", "short 1", "second 23")
    raw = store.read("first")
    assert before - ids_in(raw) == set(ids(["3", "short 1"])["first"])
    assert raw.counts["set_aside/removed"] == 2
    finding = checks.little_set_aside(checks.Subject(raw, store.store, recipe()))
    assert finding.message.startswith("0 of 20 rows")
    assert not [row for path in raw.files("rejects") for row in read_table(path).to_pylist()]


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


def test_a_version_that_holds_a_removed_document_is_no_longer_meant(tmp_path: Path) -> None:
    store = Made(tmp_path, None)
    store.read("first")
    store.forget("3")
    assert not isinstance(last_read(store.store, "first", store.config("first"), PART_BYTES), Version)
    raw = store.read("first")
    assert last_read(store.store, "first", store.config("first"), PART_BYTES).path == raw.path


def test_a_reading_that_was_killed_goes_on_without_the_documents(
    tmp_path: Path, frozen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, written = Made(tmp_path / "had", frozen), 0
    store.made()
    store.forget("3", "12")
    put = Draft.put

    def killed(draft: Draft, part: Part) -> None:
        nonlocal written
        put(draft, part)
        if (written := written + 1) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Draft, "put", killed)
        store.made()
    store.forget("5")
    assert store.made() == Made(tmp_path / "never", frozen, ["3", "12", "5"]).made()


def test_a_corpus_of_which_all_was_removed_says_so(tmp_path: Path, frozen: Path) -> None:
    store = Made(tmp_path / "had", frozen)
    store.made()
    store.forget(*(key for texts in CORPORA["second"].values() for key in texts))
    with pytest.raises(CorpusError, match=r"corpus 'second' is empty: .*\(removed 9\)"):
        store.read("second")
    assert store.made(["first"]) == Made(tmp_path / "never", frozen).made(["first"])


def test_a_stored_corpus_that_holds_a_removed_document_is_refused(tmp_path: Path) -> None:
    store = Made(tmp_path, None)
    stored = StoredConfig(path=str(store.read("first").path))
    assert collect(store.store, ENGINE, "first", stored, PART_BYTES).counts["documents"] == 22
    store.forget("3")
    with pytest.raises(CorpusError, match="holds documents that were removed"):
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
        assert find(store.store, [name]) == {"web": {document}}
    both = find(store.store, ["page", "3"])
    assert both == {"web": {document}, "first": set(ids(["3"])["first"])}
    with pytest.raises(LineageError, match=r"example\.org/other' is not the id or the URL"):
        find(store.store, ["page", "https://example.org/other"])
