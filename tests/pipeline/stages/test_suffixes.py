"""Suffix arrays: sorted as plain Python sorts, and counts as a scan of the text finds them."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.stages.suffixes import blocks, maximal_runs, occurrences, suffix_array

TYPES = (np.uint16, np.uint32)
# Few ids, so that runs repeat; 0, which also fills the words that are compared; the largest.
IDS = {dtype: st.sampled_from([0, 1, 2, np.iinfo(dtype).max >> (dtype == np.uint32)]) for dtype in TYPES}


def tokens(dtype: type, least: int = 1) -> st.SearchStrategy[np.ndarray]:
    return st.lists(IDS[dtype], min_size=least, max_size=60).map(lambda ids: np.array(ids, dtype))


def in_order(ids: list[int]) -> list[int]:
    return sorted(range(len(ids)), key=lambda start: ids[start:])


@pytest.mark.parametrize("dtype", TYPES)
def test_suffixes_are_in_the_order_in_which_python_sorts_lists(dtype: type) -> None:
    @settings(max_examples=200, deadline=None)
    @given(tokens(dtype))
    def check(ids: np.ndarray) -> None:
        assert suffix_array(ids).tolist() == in_order(ids.tolist())

    check()


@pytest.mark.parametrize("dtype", TYPES)
def test_runs_are_counted_and_measured_as_a_scan_finds_them(dtype: type) -> None:
    @settings(max_examples=200, deadline=None)
    @given(tokens(dtype), tokens(dtype))
    def check(ids: np.ndarray, text: np.ndarray) -> None:
        suffixes, inside = suffix_array(ids), ids.tolist()
        lengths = []
        for start in range(len(text)):
            runs = [text[start : start + size].tolist() for size in range(1, len(text) - start + 1)]
            starts = [[i for i in range(len(ids)) if inside[i : i + len(run)] == run] for run in runs]
            lengths.append(sum(map(bool, starts)))
            for run, expected in zip(runs, starts, strict=True):
                first, end = occurrences(ids, suffixes, np.array(run, dtype))
                assert sorted(suffixes[first:end].tolist()) == expected
        alone = [
            length if start == 0 or length >= lengths[start - 1] else 0
            for start, length in enumerate(lengths)
        ]
        for least in range(1, len(text) + 2):
            expected = [length * (length >= least) for length in alone]
            assert maximal_runs(ids, suffixes, text, least).tolist() == expected

    check()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 30), max_size=40), st.integers(1, 60))
def test_blocks_are_whole_documents_and_only_the_last_is_short(lengths: list[int], at_least: int) -> None:
    found = blocks(np.array(lengths, np.int32), at_least)
    ends = np.cumsum(lengths).tolist()
    assert [0, *(end for _, end in found)] == [*(begin for begin, _ in found), sum(lengths)]
    assert all(end in ends for _, end in found)
    assert all(end - begin >= at_least for begin, end in found[:-1])
    assert all(end - begin < at_least + max(lengths) for begin, end in found)


SIZE = 2_000_000
DRAWN = np.random.default_rng(1).integers(0, 8192, SIZE)
DEGENERATE = {
    "one repeated token": np.full(SIZE, 7),
    "period 7": np.resize(np.arange(7), SIZE),
    "two equal halves": np.tile(DRAWN[: SIZE // 2], 2),
    "ids 0 at the end": np.append(DRAWN[: SIZE // 2], np.zeros(SIZE // 2, np.int64)),
}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", DEGENERATE)
def test_text_that_repeats_itself_is_sorted_right_and_soon(name: str, dtype: type) -> None:
    ids = DEGENERATE[name].astype(dtype)
    started = time.process_time()
    order = suffix_array(ids)
    assert time.process_time() - started < 30
    # Sorted: of neighbors, the first token of the earlier is smaller or, if it is the same, what follows.
    places = np.empty(SIZE + 1, np.int64)
    places[order], places[SIZE] = np.arange(SIZE), -1
    assert places.min() == -1 and np.array_equal(np.sort(order), np.arange(SIZE))
    before, after = order[:-1].astype(np.int64), order[1:].astype(np.int64)
    smaller = ids[before] < ids[after]
    same = ids[before] == ids[after]
    assert np.all(smaller | (same & (places[before + 1] < places[after + 1])))


@pytest.mark.parametrize("dtype", TYPES)
def test_a_single_token_is_found_and_another_is_not(dtype: type) -> None:
    ids = np.zeros(1, dtype)
    suffixes = suffix_array(ids)
    assert occurrences(ids, suffixes, ids) == (0, 1)
    assert occurrences(ids, suffixes, ids + 1) == (1, 1)
    assert maximal_runs(ids, suffixes, np.array([0, 0, 1], dtype), 1).tolist() == [1, 1, 0]
