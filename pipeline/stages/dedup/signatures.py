"""One fixed-size signature for each document: an exact hash and a MinHash."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.stages.compiled import borrowing, kernel
from pipeline.stages.dedup.normalize import ALONE, count_characters, end_of_character
from pipeline.stages.dedup.params import MAX_CHARS, SEED, DedupParams
from pipeline.stages.dedup.shingles import Texts, hash_shingles, normalize_row, texts
from pipeline.stages.hashing import murmur128
from pipeline.store.params import required

_EMPTY = np.uint32(0xFFFFFFFF)
_F1, _F2 = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)
_HALF = np.uint64(32)


class _Signatures(NamedTuple):
    """The columns of `signature_schema`; `exact` as two uint64."""

    exact: np.ndarray
    num_shingles: np.ndarray
    length: np.ndarray
    truncated: np.ndarray
    minhash: np.ndarray


def signature_schema(params: DedupParams) -> pa.Schema:
    """The schema of signatures. `exact` is MurmurHash3 x64 128 of the normalized text, and `length` the
    number of its characters. `num_shingles` counts repeats, too, and is 0 for empty text only.
    """
    return required(
        id=pa.string(),
        exact=pa.binary(16),
        num_shingles=pa.int32(),
        length=pa.int64(),
        truncated=pa.bool_(),
        minhash=pa.list_(pa.uint32(), params.num_perm),
    )


def signatures(documents: pa.RecordBatch, params: DedupParams) -> pa.RecordBatch:
    """The signature of each document, in order, as `signature_schema`: 29 + 4 * num_perm bytes and the id.

    `exact` covers the whole text, the MinHash its first MAX_CHARS normalized characters (`truncated` where
    that is not all), so equal `exact` means equal `minhash`. Empty text (nothing but white space) has no
    shingles and a MinHash of all ones.
    """
    column = texts(documents.column("text"), alone=ALONE)
    rows = len(documents)
    found = _Signatures(
        exact=np.empty((rows, 2), np.uint64),
        num_shingles=np.empty(rows, np.int32),
        length=np.empty(rows, np.int64),
        truncated=np.zeros(rows, np.bool_),
        minhash=np.empty((rows, params.num_perm), np.uint32),
    )
    a, b = permutations(params.num_perm)
    _hash_texts(column, params.ngram, a, b, found)
    return pa.RecordBatch.from_arrays(
        [
            documents.column("id").cast(pa.string()),
            pa.Array.from_buffers(pa.binary(16), rows, [None, pa.py_buffer(found.exact)]),
            pa.array(found.num_shingles),
            pa.array(found.length),
            pa.array(found.truncated),
            pa.FixedSizeListArray.from_arrays(pa.array(found.minhash.reshape(-1)), params.num_perm),
        ],
        schema=signature_schema(params),
    )


def permutations(num_perm: int) -> tuple[np.ndarray, np.ndarray]:
    """a (odd) and b of h -> a * h + b mod 2^32, uint32[num_perm]: datasketch 2.0's `affine32`."""
    generator = np.random.RandomState(SEED)
    a = generator.randint(0, 1 << 31, num_perm, dtype=np.uint32) * np.uint32(2) + np.uint32(1)
    return a, generator.randint(0, 1 << 32, num_perm, dtype=np.uint32)


@borrowing
def _fmix32(value: np.uint32) -> np.uint32:
    value = np.uint32(np.uint32(value ^ (value >> np.uint32(16))) * _F1)
    value = np.uint32(np.uint32(value ^ (value >> np.uint32(13))) * _F2)
    return np.uint32(value ^ (value >> np.uint32(16)))


@borrowing
def minhash_row(shingles: np.ndarray, count: int, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """The MinHash of the upper 32 bits of shingles[:count] (uint64) to `out` (uint32[num_perm]), equal to
    datasketch 2.0's `affine32`.

    Four shingles a round: the permutations stay in vector registers and the minima are stored once.
    """
    out[:] = _EMPTY
    for i in range(0, count, 4):
        h0 = _fmix32(np.uint32(shingles[i] >> _HALF))
        h1 = _fmix32(np.uint32(shingles[min(i + 1, count - 1)] >> _HALF))
        h2 = _fmix32(np.uint32(shingles[min(i + 2, count - 1)] >> _HALF))
        h3 = _fmix32(np.uint32(shingles[min(i + 3, count - 1)] >> _HALF))
        for k in range(len(out)):
            p0, p1 = np.uint32(a[k] * h0 + b[k]), np.uint32(a[k] * h1 + b[k])
            p2, p3 = np.uint32(a[k] * h2 + b[k]), np.uint32(a[k] * h3 + b[k])
            out[k] = min(out[k], min(min(p0, p1), min(p2, p3)))


@kernel
def _hash_texts(texts: Texts, ngram: int, a: np.ndarray, b: np.ndarray, out: _Signatures) -> None:
    for row in range(len(texts.offsets) - 1):
        size = normalize_row(texts, row)
        out.length[row] = count_characters(texts.text, size)
        out.exact[row, 0], out.exact[row, 1] = murmur128(texts.blocks, size)
        out.truncated[row] = out.length[row] > MAX_CHARS
        if out.truncated[row]:
            size = end_of_character(texts.text, size, MAX_CHARS)
            for i in range(size, size + 16):
                texts.text[i] = 0
        out.num_shingles[row] = hash_shingles(texts, size, ngram)
        minhash_row(texts.words, out.num_shingles[row], a, b, out.minhash[row])
