"""Band keys, candidate pairs and clusters: the steps that a stored corpus goes through one at a time."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.stages.dedup import (
    EMPTY_KEY,
    DedupParams,
    band_keys,
    candidate_pairs,
    exact_keys,
    first_of_equal,
    labels,
    linked,
    signatures,
    sort_band,
    unite,
)
from tests.rows import documents


def signed(texts: list[str], params: DedupParams) -> pa.RecordBatch:
    return signatures(documents(*texts), params)


def clusters(count: int, pairs: list[tuple[int, int]]) -> list[int]:
    parents = np.arange(count)
    unite(parents, *np.array(pairs, np.int64).reshape(-1, 2).T.copy())
    return labels(parents).tolist()


def test_a_band_key_is_equal_exactly_where_all_rows_of_the_band_are():
    params = DedupParams(bands=16, rows=2)
    texts = [" ".join(f"w{i}" for i in range(start, start + 40)) for start in range(0, 20, 2)]
    signature = signed(texts, params)
    minhash = np.array(signature.column("minhash").to_pylist()).reshape(len(texts), 16, 2)
    keys = band_keys(signature, params)
    assert keys.shape == (10, 16)
    assert len(np.unique(keys)) == len(
        {(band, *values) for row in minhash for band, values in enumerate(row.tolist())}
    )
    for i in range(10):
        assert np.array_equal(keys[0] == keys[i], (minhash[0] == minhash[i]).all(axis=1))


def test_a_slice_of_signatures_has_the_keys_of_its_rows():
    params = DedupParams(bands=4, rows=4)
    signature = signed([f"text number {i} of this very small part" for i in range(10)], params)
    assert np.array_equal(band_keys(signature.slice(3, 4), params), band_keys(signature, params)[3:7])


def test_empty_documents_pair_with_nothing():
    params = DedupParams()
    keys = band_keys(signed(["", "one", "", " ", "one"], params), params)
    assert (keys[[0, 2, 3]] == EMPTY_KEY).all()
    left, right = candidate_pairs(*sort_band(keys[:, 0].copy(), np.arange(5)))
    assert (left.tolist(), right.tolist()) == ([1], [4])


small_keys = st.lists(st.one_of(st.integers(0, 6), st.just(int(EMPTY_KEY))), max_size=60)


@settings(deadline=None)
@given(small_keys, st.randoms(use_true_random=False))
def test_pairs_star_to_the_smallest_row_of_each_key_in_whatever_order_rows_arrive(keys, shuffler):
    rows = list(range(len(keys)))
    shuffler.shuffle(rows)
    left, right = candidate_pairs(
        *sort_band(np.array([keys[row] for row in rows], np.uint64), np.array(rows, np.int64))
    )
    expected = {
        (keys.index(key), row) for row, key in enumerate(keys) if key != EMPTY_KEY and keys.index(key) != row
    }
    assert set(zip(left.tolist(), right.tolist(), strict=True)) == expected
    assert len(left) == len(expected)


@settings(deadline=None)
@given(small_keys, st.lists(st.integers(0, 60), max_size=3))
def test_runs_sorted_part_by_part_merge_to_the_pairs_of_the_whole(keys, cuts):
    whole, rows = np.array(keys, np.uint64), np.arange(len(keys))
    edges = sorted({0, len(keys), *(cut for cut in cuts if cut < len(keys))})
    runs = [sort_band(whole[start:end], rows[start:end]) for start, end in pairwise(edges)]
    merged = (
        sort_band(*(np.concatenate(columns) for columns in zip(*runs, strict=True)))
        if runs
        else (whole, rows)
    )
    for ours, scratch in zip(candidate_pairs(*merged), candidate_pairs(*sort_band(whole, rows)), strict=True):
        assert np.array_equal(ours, scratch)


@settings(deadline=None)
@given(st.integers(1, 40), st.data())
def test_clusters_are_the_connected_components_whatever_the_order_of_pairs(count, data):
    pairs = data.draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=60))
    component = list(range(count))
    for a, b in pairs:
        low, high = sorted((component[a], component[b]))
        component = [low if value == high else value for value in component]
    assert clusters(count, pairs) == component
    assert clusters(count, [(b, a) for a, b in reversed(pairs)]) == component


def test_only_documents_with_company_are_linked():
    assert linked(np.array(clusters(6, [(4, 1), (5, 4)]))).tolist() == [1, 4, 5]


def test_a_million_pairs_to_one_document_unite_in_linear_time():
    parents = np.arange(1_000_001)
    unite(parents, np.arange(1_000_000), np.arange(1, 1_000_001))
    assert not labels(parents).any()


def test_equal_text_has_equal_keys_its_first_row_stands_for_it_and_empty_text_for_nothing():
    signature = signed(["b", "a", "B ", "", " ", "a", "c"], DedupParams())
    keys = exact_keys(signature.column("exact"), signature.column("num_shingles").to_numpy())
    assert first_of_equal(signature).tolist() == [0, 1, 6]
    assert (keys == EMPTY_KEY).tolist() == [False, False, False, True, True, False, False]
    assert keys[0] == keys[2] and keys[1] == keys[5] and len(set(keys.tolist())) == 4
    assert np.array_equal(
        exact_keys(signature.slice(2).column("exact"), signature.slice(2).column("num_shingles").to_numpy()),
        keys[2:],
    )
