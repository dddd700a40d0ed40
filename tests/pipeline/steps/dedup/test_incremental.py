"""Corpora that change: the decisions are those of a first run, and only what a change touches is made
anew. They are those of any number of ranges, none of which the run itself holds.
"""

import pickle
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pipeline.recipe.sections import DedupGuard
from pipeline.stages import dedup
from pipeline.steps.dedup import candidates, clusters, components, shuffle
from pipeline.steps.dedup.limits import alarms
from pipeline.store import keys
from pipeline.store.engines.local import LocalEngine
from pipeline.store.manifest import Version
from pipeline.store.store import Store
from tests.pipeline.stages.dedup import in_memory
from tests.pipeline.steps.make import deduplicate
from tests.pipeline.steps.stored import put
from tests.rows import documents, stored_rows

ENGINE = LocalEngine(workers=1)
PARAMS = dedup.DedupParams(bands=6, rows=4)
Parts = dict[str, dict[str, str]]


def words(seed: int, count: int) -> list[str]:
    generator = random.Random(seed)
    return [f"w{generator.randrange(100_000):05}" for _ in range(count)]


def text(family: int, edit: int) -> str:
    """One of a family of texts; by the size of their edits some are duplicates, some only neighbors."""
    source = words(family, 60)
    start, count = 7 * edit % 50, edit % 9
    return " ".join([*source[:start], *words(1000 + edit, count), *source[start + count :]])


texts = st.one_of(
    st.builds(text, st.integers(0, 2), st.integers(0, 12)), st.sampled_from(["", "one", "two words"])
)
parts = st.dictionaries(
    st.sampled_from(["p0", "p1", "p2"]), st.lists(texts, min_size=1, max_size=6), min_size=1
)


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, Parts]]:
    """States of the corpora, each the one before with a part or a corpus added, changed, moved or removed."""
    state: dict[str, dict[str, list[str]]] = {"a": draw(parts)}
    states = []
    for _ in range(draw(st.integers(2, 4))):
        corpus = draw(st.sampled_from(["a", "b", "c"]))
        match draw(st.sampled_from(["corpus", "part", "remove", "order"])):
            case "corpus":
                state = state | {corpus: draw(parts)}
            case "part" if corpus in state:
                state = state | {corpus: state[corpus] | draw(parts)}
            case "remove" if len(state) > 1:
                state = {name: found for name, found in state.items() if name != corpus} or state
            case "order":
                state = dict(reversed(state.items()))
        states.append(
            {
                name: {
                    part: {f"{name}-{part}-{i}": one for i, one in enumerate(found)}
                    for part, found in state[name].items()
                }
                for name in state
            }
        )
    return states


def decided(store: Store, state: dict[str, Parts]) -> Version:
    for corpus, found in state.items():
        put(store, corpus, found)
    return deduplicate(store, ENGINE, list(state), PARAMS)


def content(version: Version) -> dict[str, bytes]:
    return {part.name: version.file(part, "decisions").path.read_bytes() for part in version.parts}


@pytest.fixture(scope="module", autouse=True)
def small_slices() -> Iterator[None]:
    """Ranges of keys and clusters, and pieces, as small as these corpora, so that there are several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "RANGE_KEYS", 11)
        patch.setattr(components, "DOCUMENTS_TOGETHER", 11)
        patch.setattr(components, "RANGE_BITS", 2)
        patch.setattr(clusters, "RANGE_CHARACTERS", 1500)
        patch.setattr(import_module("pipeline.stages.dedup.clusters"), "PIECE_CHARACTERS", 3000)
        yield


@contextmanager
def ranges(components_together: int, bits: int, files: int, together: int) -> Iterator[None]:
    """Ranges of components and levels of files as small as these corpora, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "COMPONENTS_TOGETHER", components_together)
        for module in (clusters, components, shuffle):
            patch.setattr(module, "BITS", bits)
        patch.setattr(shuffle, "FILES", files)
        patch.setattr(shuffle, "TOGETHER", together)
        yield


some_ranges = st.tuples(
    st.integers(1, 20), st.integers(1, 4), st.integers(1, 4), st.sampled_from([100, 1000, 10_000])
)


@settings(deadline=None, max_examples=4, phases=[Phase.generate])
@given(histories(), some_ranges)
def test_any_history_and_ranges_end_in_the_very_files_of_a_first_run(
    states: list[dict[str, Parts]], small: tuple[int, int, int, int]
) -> None:
    ends_as_a_first_run(states, small)


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(histories(), some_ranges)
def test_many_more_histories_and_ranges_end_in_the_very_files_of_a_first_run(
    states: list[dict[str, Parts]], small: tuple[int, int, int, int]
) -> None:
    ends_as_a_first_run(states, small)


def ends_as_a_first_run(states: list[dict[str, Parts]], small: tuple[int, int, int, int]) -> None:
    with TemporaryDirectory() as grown, TemporaryDirectory() as fresh:
        with ranges(*small):
            for state in states:
                store = Store(Path(grown))
                version = decided(store, state)
        new = Store(Path(fresh))
        first = decided(new, states[-1])
        assert content(version) == content(first)
        # of the runs that made them: evidence that equals that of an earlier state is not the newest
        evidence = [one.current(keys.DEDUP_EVIDENCE) for one in (store, new)]
        assert evidence[0].data_version == evidence[1].data_version
        parts = [
            (priority, part)
            for priority, corpus in enumerate(states[-1].values())
            for _, part in sorted(corpus.items())
        ]
        batches = [documents(*part.values(), ids=list(part)) for _, part in parts]
        expected = in_memory.deduplicate(batches, [priority for priority, _ in parts], PARAMS)
        assert rows(version) == {row["id"]: row for row in expected.to_pylist()}


def rows(version: Version) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in stored_rows(version, "decisions")}


def test_a_change_in_one_document_makes_nothing_anew_but_its_part(tmp_path: Path) -> None:
    state = {
        "a": {f"p{i}": {f"{i}-{j}": text(family=10 * i + j % 4, edit=j) for j in range(8)} for i in range(6)}
    }
    store = Store(tmp_path)
    first = decided(store, state)
    state["a"]["p2"]["2-3"] = text(family=21, edit=0)
    second = decided(store, state)
    inodes = [
        {part.name: version.file(part, "decisions").path.stat().st_ino for part in version.parts}
        for version in (first, second)
    ]
    assert {name for name in inodes[0] if inodes[0][name] != inodes[1][name]} == {"a.p2"}
    counts = store.current(keys.DEDUP_EVIDENCE).counts
    assert counts["clusters_verified_anew"] <= 1 < counts["clusters"]


def test_a_corpus_added_behind_the_others_leaves_their_decisions_where_they_are(tmp_path: Path) -> None:
    store = Store(tmp_path)
    state = {"a": {"p": {"1": text(1, 0), "2": text(2, 0)}}}
    first = decided(store, state)
    second = decided(store, state | {"b": {"p": {"3": text(3, 0)}}})
    assert first.file(first.parts[0], "decisions").path.samefile(second.file(second.parts[0], "decisions"))


def test_what_is_in_a_corpus_that_is_not_trained_on_leaves_the_others_and_goes_itself(tmp_path: Path) -> None:
    store = Store(tmp_path)
    state = {
        "known": {"p": {"1": text(1, 0), "2": text(2, 0), "3": text(2, 0)}},
        "new": {"p": {"4": text(1, 1), "5": text(3, 0)}, "q": {"6": text(4, 0)}},
    }
    trained = decided(store, state)
    apart = deduplicate(store, ENGINE, list(state), PARAMS, excluded=["known"])
    assert {key: (row["keep"], row["reason"], row["duplicate_of"]) for key, row in rows(apart).items()} == {
        "1": (False, "excluded", None),
        "2": (False, "excluded", None),
        "3": (False, "exact", "2"),
        "4": (False, "near", "1"),
        "5": (True, None, None),
        "6": (True, None, None),
    }
    assert apart.counts["removed/excluded"] == 2
    files = [
        {one.name: version.file(one, "decisions") for one in version.parts} for version in (trained, apart)
    ]
    assert [files[0][name].path.samefile(files[1][name]) for name in files[0]] == [False, True, True]
    assert alarms(apart, DedupGuard(max_lost_share=0.5)) == []
    assert decided(store, state).fingerprint == trained.fingerprint


def test_other_parameters_do_not_take_over_what_was_verified_with_these(tmp_path: Path) -> None:
    store = Store(tmp_path)
    state = {"a": {"p": {"1": text(1, 0), "2": text(1, 1)}}}
    assert decided(store, state).counts["removed"] == 1
    strict = PARAMS.model_copy(update={"threshold": 1.0})
    assert deduplicate(store, ENGINE, ["a"], strict).counts["removed"] == 0
    assert deduplicate(store, ENGINE, ["a"], PARAMS).counts["removed"] == 1


@pytest.mark.slow
def test_two_processes_decide_as_one(tmp_path: Path) -> None:
    state = {"a": {f"p{i}": {f"{i}-{j}": text(j, i) for j in range(6)} for i in range(3)}}
    alone = decided(Store(tmp_path / "one"), state)
    for corpus, found in state.items():
        put(Store(tmp_path / "two"), corpus, found)
    engine = LocalEngine(workers=2, processes_pay_above=0)
    try:
        together = deduplicate(Store(tmp_path / "two"), engine, list(state), PARAMS)
    finally:
        engine.close()
    assert content(together) == content(alone)


class Noting(LocalEngine):
    """Notes what it is given to do."""

    def map(self, function: Any, tasks: Sequence[Any], **more: Any) -> Iterator[Any]:
        self.noted = [*getattr(self, "noted", []), *tasks]
        return super().map(function, tasks, **more)


def test_a_task_holds_the_keys_of_one_band_once_these_are_many(tmp_path: Path) -> None:
    store, engine = Store(tmp_path), Noting(workers=1)
    put(store, "a", {"p0": {str(number): text(number, 0) for number in range(11)}})
    deduplicate(store, engine, ["a"], PARAMS)
    runs = [task for task in engine.noted if isinstance(task, candidates.RunKeys)]
    assert {len(task.numbers) for task in runs} == {1} and len(runs) == 1 + PARAMS.bands


class Weighing(LocalEngine):
    """Notes the most bytes that the run holds of a task or its result."""

    heaviest = 0

    def map(self, function: Any, tasks: Sequence[Any], **more: Any) -> Iterator[Any]:
        for task, result in zip(tasks, super().map(function, tasks, **more), strict=True):
            self.heaviest = max(self.heaviest, *(len(pickle.dumps(one)) for one in (task, result)))
            yield result


def test_the_run_holds_no_array_of_all_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "RANGE_KEYS", 1500)
    monkeypatch.setattr(components, "RANGE_BITS", 8)
    monkeypatch.setattr(clusters, "RANGE_CHARACTERS", 200_000)
    store, engine = Store(tmp_path), Weighing(workers=1)
    documents = [text(family, edit) for family in range(60) for edit in (0, 1, 9)] * 10
    put(store, "a", {"p0": {f"{number:04}": one for number, one in enumerate(documents)}})
    with ranges(500, 3, 256, 128_000_000):
        version = deduplicate(store, engine, ["a"], PARAMS)
    assert version.counts["removed"] > 1600
    assert engine.heaviest < 2 * len(documents)  # bytes
