"""Training documents that quote an evaluation set: word n-grams in common, compared word by word and not only
by hash.

Text is normalised as dedup does it (NFC, casefolded, words are `\\w+`). Of an evaluation text shorter than
`ngram` words the whole text is looked for, if it has at least `min_words` (as GPT-3's appendix C and NeMo
Curator do it: 13 and 8); shorter ones say too little to look for.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import Field

from pipeline.stages.compiled import inner, kernel
from pipeline.stages.dedup.characters import MARK, WORD, characters
from pipeline.stages.dedup.hashing import mix64
from pipeline.stages.dedup.normalise import decode, normal_form, normalise
from pipeline.stages.dedup.shingles import hash_words, longest, text_scratch, word_factors
from pipeline.store.params import Params

VERSION = "decontamination-1"
HITS_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("set", pa.string(), nullable=False),
        pa.field("ngram", pa.string(), nullable=False),
        pa.field("position", pa.int64(), nullable=False),
        pa.field("hits", pa.int64(), nullable=False),
    ]
)
_BASE, _ONE, _LOW = np.uint64(0x9E3779B97F4A7C15), np.uint64(1), np.uint64(63)
_BITS_PER_NGRAM = 16  # of the filter before the look-up: one n-gram in 16 at most passes without being there


class NgramParams(Params):
    """How much of an evaluation text is too much."""

    ngram: int = Field(
        13,
        ge=3,
        le=100,
        description="Words in a row that a document and an evaluation text must share to count as a hit. 13 "
        "as in GPT-3 (Brown et al. 2020, appendix C).",
    )
    min_words: int = Field(
        8,
        ge=1,
        le=100,
        description="An evaluation text shorter than `ngram` words is searched for as a whole if it has at "
        "least this many words; shorter ones are ignored. 8 as in NeMo Curator.",
    )


class Ngrams(NamedTuple):
    """The n-grams of evaluation sets. Word w is `text[starts[w]:ends[w]]`; n-gram k, ascending by hash, is
    `lengths[k]` words from `words[k]` on.
    """

    text: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    hashes: np.ndarray
    words: np.ndarray
    lengths: np.ndarray
    sets: np.ndarray

    def quote(self, ngram: int) -> str:
        """The n-gram as the evaluation text has it, normalised."""
        first = self.words[ngram]
        return (
            self.text[self.starts[first] : self.ends[first + self.lengths[ngram] - 1]]
            .tobytes()
            .decode("utf-8", "replace")
        )


def ngrams(sets: Iterable[tuple[int, pa.Array]], params: NgramParams) -> Ngrams:
    """Of evaluation texts, given in batches with the number of their set. About 50 bytes for each n-gram, and
    the text.
    """
    found = [_of_texts(column, number, params) for number, column in sets]
    words, bytes_ = 0, 0
    for i, one in enumerate(found):
        found[i] = one._replace(starts=one.starts + bytes_, ends=one.ends + bytes_, words=one.words + words)
        words, bytes_ = words + len(one.starts), bytes_ + len(one.text)
    whole = Ngrams(*(np.concatenate(columns) for columns in zip(*found, strict=True)))
    order = np.lexsort((whole.sets, whole.hashes))
    hashes, numbers = whole.hashes[order], whole.sets[order]
    order = order[np.append(True, (hashes[1:] != hashes[:-1]) | (numbers[1:] != numbers[:-1]))[: len(order)]]
    return Ngrams(*whole[:3], *(column[order] for column in whole[3:]))


def _of_texts(column: pa.Array, number: int, params: NgramParams) -> Ngrams:
    data, offsets = normal_form(column)
    classes, folds = characters()
    blocks = text_scratch(offsets)
    size = int(offsets[-1] - offsets[0])
    text, starts, ends = (
        np.empty(3 * size, np.uint8),
        np.empty(size // 2 + len(offsets), np.int64),
        np.empty(size // 2 + len(offsets), np.int64),
    )
    hashes, words, lengths = (
        np.empty(len(starts), np.uint64),
        np.empty(len(starts), np.int64),
        np.empty(len(starts), np.int64),
    )
    scratch = np.empty(longest(offsets) // 2 + 1, np.uint64)
    factors, out = word_factors(classes), (text, starts, ends, hashes, words, lengths)
    bytes_, found_words, grams = _index(
        data, offsets, classes, folds, factors, params.ngram, params.min_words, blocks, scratch, *out
    )
    sets = np.full(grams, number, np.int64)
    return Ngrams(
        text[:bytes_],
        starts[:found_words],
        ends[:found_words],
        hashes[:grams],
        words[:grams],
        lengths[:grams],
        sets,
    )


class Filter(NamedTuple):
    """N-grams made ready for `contamination`: a bit for the leading bits of each hash, and the lengths
    that occur.
    """

    ngrams: Ngrams
    bits: np.ndarray
    shift: int
    lengths: np.ndarray


def prepared(index: Ngrams) -> Filter:
    """Two bytes for each n-gram."""
    width = max(6, (_BITS_PER_NGRAM * len(index.hashes)).bit_length())
    bits = np.zeros(1 << (width - 6), np.uint64)
    leading = index.hashes >> np.uint64(64 - width)
    np.bitwise_or.at(bits, (leading >> np.uint64(6)).astype(np.int64), _ONE << (leading & _LOW))
    return Filter(index, bits, 64 - width, np.unique(index.lengths))


def contamination(documents: pa.RecordBatch, against: Filter, names: list[str]) -> pa.RecordBatch:
    """HITS_SCHEMA, a row for each document and evaluation set that share an n-gram: the first of them, as the
    evaluation text has it, at which word of the document it starts (`position`, from 0), and at how many
    words one starts (`hits`). `names`: of the sets, by number.

    One pass over the text, one rolling hash for each length of n-grams.
    """
    data, offsets = normal_form(documents.column("text"))
    classes, folds = characters()
    blocks, rows = text_scratch(offsets), len(offsets) - 1
    room = longest(offsets) // 2 + 1
    scratch, starts, ends = np.empty(room, np.uint64), np.empty(room, np.int64), np.empty(room, np.int64)
    hits, first = np.zeros((rows, len(names)), np.int64), np.zeros((rows, len(names)), np.int64)
    position = np.full((rows, len(names)), np.iinfo(np.int64).max)
    index, bits, shift, lengths = against
    factors = word_factors(classes)
    _scan(
        data,
        offsets,
        classes,
        folds,
        factors,
        blocks,
        scratch,
        starts,
        ends,
        index,
        bits,
        shift,
        lengths,
        hits,
        first,
        position,
    )
    row, number = np.nonzero(hits)
    return pa.RecordBatch.from_arrays(
        [
            documents.column("id").cast(pa.string()).take(pa.array(row)),
            pa.array([names[i] for i in number], pa.string()),
            pa.array([index.quote(k) for k in first[row, number]], pa.string()),
            pa.array(position[row, number]),
            pa.array(hits[row, number]),
        ],
        schema=HITS_SCHEMA,
    )


@inner
def _bounds(text: np.ndarray, size: int, classes: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> int:
    """Where the words that `hash_words` finds start and end; returns how many."""
    count, i, within = 0, 0, False
    while i < size:
        code, width = decode(text, i, size)
        inside = classes[code] & WORD or (classes[code] & MARK and within)
        if inside and not within:
            starts[count] = i
        if within and not inside:
            ends[count] = i
            count += 1
        within = bool(inside)
        i += width
    if within:
        ends[count] = size
        count += 1
    return count


@inner
def _hash(words: np.ndarray, first: int, length: int) -> tuple[np.uint64, np.uint64]:
    """The polynomial of `length` word hashes, and the factor with which the first of them leaves it."""
    value, top = np.uint64(0), np.uint64(1)
    for i in range(first, first + length):
        value = value * _BASE + words[i]
        top *= _BASE
    return value, top


@kernel
def _index(
    data: np.ndarray,
    offsets: np.ndarray,
    classes: np.ndarray,
    folds: np.ndarray,
    factors: np.ndarray,
    ngram: int,
    min_words: int,
    blocks: np.ndarray,
    scratch: np.ndarray,
    text: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    hashes: np.ndarray,
    words: np.ndarray,
    lengths: np.ndarray,
) -> tuple[int, int, int]:
    normal = blocks.view(np.uint8)
    filled = found = grams = 0
    for row in range(len(offsets) - 1):
        size = normalise(data, offsets[row], offsets[row + 1], classes, folds, normal)
        count = hash_words(normal, size, classes, factors, scratch)
        _bounds(normal, size, classes, starts[found:], ends[found:])
        for word in range(found, found + count):
            starts[word] += filled
            ends[word] += filled
        text[filled : filled + size] = normal[:size]
        length = min(ngram, count)
        if length == ngram or length >= min_words:
            for first in range(count - length + 1):
                hashes[grams] = mix64(_hash(scratch, first, length)[0])
                words[grams], lengths[grams] = found + first, length
                grams += 1
        filled += size
        found += count
    return filled, found, grams


@inner
def _same(
    text: np.ndarray, starts: np.ndarray, ends: np.ndarray, first: int, index: Ngrams, ngram: int
) -> bool:
    for i in range(index.lengths[ngram]):
        mine, theirs = starts[first + i], index.starts[index.words[ngram] + i]
        size = ends[first + i] - mine
        if size != index.ends[index.words[ngram] + i] - theirs:
            return False
        for k in range(size):
            if text[mine + k] != index.text[theirs + k]:
                return False
    return True


@kernel
def _scan(
    data: np.ndarray,
    offsets: np.ndarray,
    classes: np.ndarray,
    folds: np.ndarray,
    factors: np.ndarray,
    blocks: np.ndarray,
    scratch: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    index: Ngrams,
    bits: np.ndarray,
    shift: int,
    all_lengths: np.ndarray,
    hits: np.ndarray,
    first: np.ndarray,
    position: np.ndarray,
) -> None:
    text = blocks.view(np.uint8)
    for row in range(len(offsets) - 1):
        size = normalise(data, offsets[row], offsets[row + 1], classes, folds, text)
        count, bounded = hash_words(text, size, classes, factors, scratch), False
        for length in all_lengths:
            if count < length:
                break
            value, top = _hash(scratch, 0, length)
            for word in range(count - length + 1):
                key = mix64(value)
                leading = key >> np.uint64(shift)
                if bits[leading >> np.uint64(6)] >> (leading & _LOW) & _ONE:
                    ngram = np.searchsorted(index.hashes, key)
                    if not bounded and ngram < len(index.hashes) and index.hashes[ngram] == key:
                        _bounds(text, size, classes, starts, ends)
                        bounded = True
                    while ngram < len(index.hashes) and index.hashes[ngram] == key:
                        number = index.sets[ngram]
                        if index.lengths[ngram] == length and _same(text, starts, ends, word, index, ngram):
                            hits[row, number] += 1
                            if word < position[row, number]:
                                position[row, number], first[row, number] = word, ngram
                        ngram += 1
                if word + length < count:
                    value = value * _BASE + scratch[word + length] - scratch[word] * top
