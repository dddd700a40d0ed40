"""Passages and their MinHashes; the search that reads hash tables as sorted arrays."""

import numpy as np
import pytest
from datasketch import MinHash, MinHashLSHEnsemble, MinHashLSHForest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.stages.dedup import shingle_sets
from pipeline.stages.dedup.passages import (
    DEPTH,
    NUM_PERM,
    PASSAGE,
    SHINGLES,
    STRIDE,
    WEIGHTS,
    WORDS,
    PassageSearch,
    passages,
    sorted_bands,
)
from tests.rows import documents


def drawn(words: int, seed: int, vocabulary: int = 300) -> str:
    numbers = np.random.default_rng(seed).integers(vocabulary, size=words)
    return " ".join(f"w{number}" for number in numbers)


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(0, 900), min_size=1, max_size=3), st.integers(0, 1000))
def test_the_minhash_of_a_passage_is_datasketchs_of_the_shingles_in_it(lengths: list[int], seed: int) -> None:
    texts = [drawn(length, seed + number) for number, length in enumerate(lengths)]
    values, sizes, numbers = passages(documents(*texts))
    assert len(values) == len(sizes) == numbers.sum()
    at = 0
    for text, number in zip(texts, numbers.tolist(), strict=True):
        words, covered = text.split(), 0
        for passage in range(number):
            begin = passage * STRIDE
            within = words[begin : begin + PASSAGE + WORDS - 1]
            hashes = shingle_sets(documents(" ".join(within)), SHINGLES).hashes
            reference = MinHash(NUM_PERM, scheme="affine32", hashfunc=int)
            reference.update_batch((hashes >> np.uint64(32)).tolist())
            assert values[at].tolist() == reference.hashvalues.tolist()
            assert sizes[at] == max(len(within) - WORDS + 1, 1)
            covered, at = begin + len(within), at + 1
        assert covered == len(words)  # to the last word, and nothing of empty text


def searched(parts: list[np.ndarray], containment: float) -> PassageSearch:
    return PassageSearch([(one.astype(">u4"), sorted_bands(one)) for one in parts], containment)


@settings(deadline=None, max_examples=10)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=3),
    st.integers(0, 1000),
    st.sampled_from([0.1, 0.25, 0.6, 1.0]),
    st.integers(1, PASSAGE),
)
def test_what_is_found_is_what_datasketch_finds_in_tables_that_it_builds(
    lengths: list[int], seed: int, containment: float, shingles: int
) -> None:
    chooser = np.random.default_rng(seed)
    parts = [chooser.integers(0, 6, (length, NUM_PERM)).astype(np.uint32) << 28 for length in lengths]
    parts[-1][-1] = parts[0][0]  # equal passages of several parts
    asked = chooser.integers(0, 6, NUM_PERM).astype(np.uint32) << 28
    asked[:20] = parts[0][0][:20]
    every = np.concatenate(parts)
    minhashes = [MinHash(hashvalues=one, scheme="affine32") for one in every]
    forest = MinHashLSHForest(NUM_PERM, l=NUM_PERM // DEPTH)
    for number, minhash in enumerate(minhashes):
        forest.add(number, minhash)
    forest.index()
    ensemble = MinHashLSHEnsemble(containment, NUM_PERM, num_part=1, m=DEPTH, weights=WEIGHTS)
    ensemble.index([(number, minhash, PASSAGE) for number, minhash in enumerate(minhashes)])
    query = MinHash(hashvalues=asked, scheme="affine32")
    search = searched(parts, containment)
    for expected, (numbers, common) in (
        (forest.query(query, len(every)), search.like(asked, len(every))),
        (ensemble.query(query, shingles), search.holding(asked, shingles, len(every))),
    ):
        assert sorted(numbers.tolist()) == sorted(expected)
        assert common.tolist() == sorted((every[numbers] == asked).sum(1).tolist(), reverse=True)


def test_the_passages_with_most_in_common_are_those_that_are_left() -> None:
    chooser = np.random.default_rng(0)
    values = chooser.integers(0, 2**32, (500, NUM_PERM), dtype=np.uint32)
    for number in range(20):
        values[number, : 10 + number] = values[100, : 10 + number]
    numbers, common = searched([values[:300], values[300:]], 0.25).holding(values[100], 80, 5)
    assert numbers.tolist() == [100, 19, 18, 17, 16] and common.tolist() == [64, 29, 28, 27, 26]


@pytest.mark.parametrize("replaced", [0.1, 0.2])
def test_a_paragraph_is_a_candidate_wherever_it_is_in_a_long_document(replaced: float) -> None:
    """Its Jaccard similarity to the whole document is about 0.01."""
    document = drawn(6000, seed=1, vocabulary=4000)
    others = [drawn(6000, seed, vocabulary=4000) for seed in range(2, 30)]
    values, _, numbers = passages(documents(document, *others))
    search, chooser, words = searched([values], 0.25), np.random.default_rng(0), document.split()
    found = 0
    for begin in chooser.integers(0, 5900, 100).tolist():
        text = [f"x{begin}" if chooser.random() < replaced else one for one in words[begin : begin + 80]]
        asked, sizes, _ = passages(documents(" ".join(text)))
        first, *_ = search.holding(asked[0], int(sizes[0]), 5)[0].tolist()
        found += first < numbers[0]
    assert found >= 99
