"""Training documents that quote an evaluation set: they share word n-grams, compared word by word.

Text is normalized as for dedup (NFC, casefolded, words are `[^\\W_]+`), after markup, which may stand between
any two words of a copy, was taken out. In scripts that put no space between words, Chinese and Japanese too,
each character counts as a word. An evaluation text shorter than `ngram`
words is searched for as a whole if it has at least `min_words` words, as in GPT-3's appendix C (13) and NeMo
Curator (8). Shorter texts are too common to search for.

Words that many documents share are a stock phrase, which says nothing about an evaluation set: a license, or
"was a common year starting on Thursday". A shared n-gram is judged by its pieces of a few words, since a
phrase with slots to fill in (the day of the week) is rare as a whole, but its pieces are not. A piece is rare
if few documents of the part have it in an n-gram that they share with a set; others need not be counted.
"""

import html
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from pipeline.stages.compiled import borrowing, kernel
from pipeline.stages.dedup.normalize import ALONE, EAST_ASIAN, GROWTH, MARK, WORD
from pipeline.stages.dedup.shingles import Texts, hash_words, normalize_row, polynomial, texts
from pipeline.stages.hashing import GOLDEN_RATIO, mix64
from pipeline.stages.text import UNICODE, character_at, equals
from pipeline.store.params import Params, required

INDEX_VERSION, VERSION = f"decontamination-4-{UNICODE}", f"decontamination-5-{UNICODE}"
HITS_SCHEMA = required(
    id=pa.string(),
    set=pa.string(),
    ngram=pa.string(),
    position=pa.int64(),
    hits=pa.int64(),
    rare=pa.float32(),
    quote=pa.bool_(),
)
# Measured on 300 paragraphs of an encyclopedia planted in its other articles: what is missed with pieces of 4
# words, 3 in 10 of which must be rare, is hardly more than a stock phrase.
PIECE, RARE_SHARE = 4, 0.3
RARE_IN_ONE_OF = 1000  # in large parts, a piece may also be in one of this many documents
BY_CHARACTER = ALONE | EAST_ASIAN
# Tags of HTML and XML; what Markdown and wikis write around the words of a link; notes; commands of LaTeX;
# line ends and quotes as in a string of a program.
_MARKUP = "|".join(
    (
        r"</?[a-zA-Z][\w:-]*(?:\s+[\w:-]+\s*=\s*(?:\"[^\"<>]*\"|'[^'<>]*'|[^\s\"'<>]+)){0,30}\s*/?>",
        r"\]\([^()\s]*\)|\[\[[^\[\]|]*\||(?:\[\d{1,3}\])+(?:[^(\w]|$)",
        r"\\[a-zA-Z]+\*?\{|\\[nrt\"]",
    )
)
_REFERENCE = r"&(?:#\w{1,8}|\w{2,31});"
_ONE, _LOW = np.uint64(1), np.uint64(63)
_ROW, _WORDS = 32, (1 << 32) - 1
_BITS_PER_NGRAM = 16  # of the filter before the search: at most one n-gram in 16 passes it by chance


class NgramParams(Params):
    """How much of an evaluation text is too much."""

    ngram: int = Field(13, ge=3, le=100)
    """Words in a row that a document and an evaluation text must share to count as a hit. 13 as in GPT-3
    (Brown et al. 2020, appendix C). In Chinese, Japanese, Thai and other scripts that put no space between
    words, each character counts as a word. Markup between the words, such as tags and `&nbsp;`, counts for
    nothing.
    """
    min_words: int = Field(8, ge=1, le=100)
    """An evaluation text shorter than `ngram` words is searched for as a whole if it has at least this many
    words; shorter ones are ignored. 8 as in NeMo Curator.
    """


class Ngrams(NamedTuple):
    """The n-grams of evaluation sets, ascending by hash.

    Word w is `text[starts[w]:ends[w]]`; n-gram k is the `lengths[k]` words from `words[k]` on.
    """

    text: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    hashes: np.ndarray
    words: np.ndarray
    lengths: np.ndarray
    sets: np.ndarray

    def quote(self, ngram: int) -> str:
        """The n-gram as the evaluation text has it, normalized."""
        first = self.words[ngram]
        quoted = self.text[self.starts[first] : self.ends[first + self.lengths[ngram] - 1]]
        return str(quoted.tobytes(), "utf-8", "replace")


def ngrams(sets: Iterable[tuple[int, pa.Array]], params: NgramParams) -> Ngrams:
    """The n-grams of evaluation texts, given in batches with the number of their set.

    About 50 bytes for each n-gram, and the text. Within a set each n-gram is kept once.
    """
    batches = [_of_texts(column, number, params) for number, column in sets]
    words, bytes_ = 0, 0
    for i, batch in enumerate(batches):
        batches[i] = batch._replace(
            starts=batch.starts + bytes_, ends=batch.ends + bytes_, words=batch.words + words
        )
        words, bytes_ = words + len(batch.starts), bytes_ + len(batch.text)
    joined = Ngrams(*(np.concatenate(columns) for columns in zip(*batches, strict=True)))
    order = np.lexsort((joined.sets, joined.hashes))
    hashes, numbers = joined.hashes[order], joined.sets[order]
    order = order[np.append(True, (hashes[1:] != hashes[:-1]) | (numbers[1:] != numbers[:-1]))[: len(order)]]
    return Ngrams(*joined[:3], *(column[order] for column in joined[3:]))


def _plain(column: pa.Array) -> Texts:
    """The texts without markup, with the characters that HTML names."""
    named = pc.match_substring_regex(column, _REFERENCE)
    if pc.any(named).as_py():
        characters = pa.array(map(html.unescape, column.filter(named).to_pylist()), pa.large_string())
        column = pc.replace_with_mask(column.cast(pa.large_string()), named, characters)
    return texts(pc.replace_substring_regex(column, _MARKUP, " "), BY_CHARACTER)


def _of_texts(column: pa.Array, number: int, params: NgramParams) -> Ngrams:
    evaluated = _plain(column)
    size = int(evaluated.offsets[-1] - evaluated.offsets[0])
    most_words = size // 2 + len(evaluated.offsets)
    room = Ngrams(
        text=np.empty(GROWTH * size, np.uint8),
        starts=np.empty(most_words, np.int64),
        ends=np.empty(most_words, np.int64),
        hashes=np.empty(most_words, np.uint64),
        words=np.empty(most_words, np.int64),
        lengths=np.empty(most_words, np.int64),
        sets=np.full(most_words, number, np.int64),
    )
    bytes_, words, grams = _index(evaluated, params.ngram, params.min_words, room)
    return Ngrams(
        room.text[:bytes_], room.starts[:words], room.ends[:words], *(rows[:grams] for rows in room[3:])
    )


class PreparedNgrams(NamedTuple):
    """N-grams prepared for `contamination`."""

    ngrams: Ngrams
    bits: np.ndarray  # uint64, bit h is set if the leading bits of a hash are h
    shift: int  # from a hash to its leading bits
    lengths: np.ndarray  # the lengths that occur, ascending
    piece: int  # words of a piece


class Shared(NamedTuple):
    """What the documents of a batch share with the sets. A place is the row of a document << 32 | a word."""

    ids: pa.Array  # of all documents
    places: np.ndarray  # int64, of each shared n-gram, ascending
    ngrams: np.ndarray  # int64, its number
    piece_places: np.ndarray  # int64, of each piece of these n-grams, ascending
    pieces: np.ndarray  # uint64, its hash


def prepared(index: Ngrams) -> PreparedNgrams:
    """The filter takes two bytes for each n-gram."""
    width = max(6, (_BITS_PER_NGRAM * len(index.hashes)).bit_length())
    bits = np.zeros(1 << (width - 6), np.uint64)
    leading = index.hashes >> np.uint64(64 - width)
    np.bitwise_or.at(bits, (leading >> np.uint64(6)).astype(np.int64), _ONE << (leading & _LOW))
    lengths = np.unique(index.lengths)
    return PreparedNgrams(index, bits, 64 - width, lengths, int(lengths.min(initial=PIECE)))


def shared(documents: pa.RecordBatch, against: PreparedNgrams) -> Shared:
    """One pass over the text, with one rolling hash for each length of n-grams, and a second one over the
    documents that share any. 32 bytes for each word that is shared.
    """
    column = _plain(documents.column("text"))
    starts, ends = np.empty(len(column.words), np.int64), np.empty(len(column.words), np.int64)
    matches = np.empty((len(column.words) // 64, 2), np.int64)
    count = _scan(column, against, starts, ends, matches)
    if count > len(matches):  # hardly ever: so much of the text is shared
        matches = np.empty((count, 2), np.int64)
        _scan(column, against, starts, ends, matches)
    places, found = matches[:count][np.argsort(matches[:count, 0], kind="stable")].T
    end = places + against.ngrams.lengths[found] - against.piece + 1
    covered = np.maximum.accumulate(np.append(0, end))
    sizes = np.maximum(covered[1:] - np.maximum(places, covered[:-1]), 0)
    piece_places = np.repeat(covered[1:] - np.cumsum(sizes), sizes) + np.arange(sizes.sum())
    pieces = np.empty(len(piece_places), np.uint64)
    _cut(column, piece_places, against.piece, pieces)
    return Shared(documents.column("id").cast(pa.string()), places, found, piece_places, pieces)


def contamination(
    part: Sequence[Shared], against: PreparedNgrams, names: list[str], stock_phrase: int
) -> pa.RecordBatch:
    """A row of HITS_SCHEMA for each document of a part and evaluation set that share an n-gram.

    `ngram` is the rarest shared n-gram as the evaluation text has it, `position` the word of the document at
    which it starts (from 0), and `hits` the number of words at which a shared n-gram starts. `rare` is the
    share of the pieces of `ngram` that no more than `stock_phrase` documents have; it decides whether this is
    a `quote`. `names` are those of the sets, by number.
    """
    index, ids = against.ngrams, pa.chunked_array([one.ids for one in part], pa.string())
    places, numbers, piece_places, pieces = _joined(part)
    _, pieces = np.unique(pieces, return_inverse=True)
    once = np.unique(pieces * len(ids) + (piece_places >> _ROW))
    documents = np.bincount(once // max(len(ids), 1))
    few = documents[pieces] <= max(stock_phrase, len(ids) // RARE_IN_ONE_OF)
    before = np.append(0, np.cumsum(few))
    first, counts = np.searchsorted(piece_places, places), index.lengths[numbers] - against.piece + 1
    rare = (before[first + counts] - before[first]) / counts
    rows, sets = places >> _ROW, index.sets[numbers]
    order = np.lexsort((places, -rare, sets, rows))
    found = rows[order] * len(names) + sets[order]
    _, first, hits = np.unique(found, return_index=True, return_counts=True)
    best = order[first]
    return pa.RecordBatch.from_arrays(
        [
            ids.take(pa.array(rows[best])).combine_chunks(),
            pa.array([names[i] for i in sets[best]], pa.string()),
            pa.array([index.quote(k) for k in numbers[best]], pa.string()),
            pa.array(places[best] & _WORDS),
            pa.array(hits),
            pa.array(rare[best], pa.float32()),
            pa.array(rare[best] >= RARE_SHARE),
        ],
        schema=HITS_SCHEMA,
    )


def _joined(part: Sequence[Shared]) -> list[np.ndarray]:
    """The columns of all batches, with places in the part."""
    first = np.cumsum([0, *(len(one.ids) for one in part)]) << _ROW
    placed = [
        one._replace(places=one.places + start, piece_places=one.piece_places + start)
        for one, start in zip(part, first, strict=False)
    ]
    none = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint64)
    return [np.concatenate(columns) for columns in zip(none, *(one[1:] for one in placed), strict=True)]


@borrowing
def _find_words(texts: Texts, size: int, starts: np.ndarray, ends: np.ndarray) -> None:
    """Writes where the words that `hash_words` hashes start and end."""
    text, classes = texts.text, texts.classes
    count, i, within = 0, 0, False
    while i < size:
        code, width = character_at(text, i, size)
        inside = classes[code] & WORD or (classes[code] & MARK and within)
        begins = inside and (not within or classes[code] & ALONE)
        if within and (begins or not inside):
            ends[count] = i
            count += 1
        if begins:
            starts[count] = i
        within = bool(inside)
        i += width
    if within:
        ends[count] = size


@kernel
def _index(texts: Texts, ngram: int, min_words: int, out: Ngrams) -> tuple[int, int, int]:
    """Writes the n-grams of all rows to `out`; returns the bytes of text, the words and the n-grams."""
    filled = words = grams = 0
    for row in range(len(texts.offsets) - 1):
        size = normalize_row(texts, row)
        count = hash_words(texts, size)
        _find_words(texts, size, out.starts[words:], out.ends[words:])
        for word in range(words, words + count):
            out.starts[word] += filled
            out.ends[word] += filled
        out.text[filled : filled + size] = texts.text[:size]
        length = min(ngram, count)
        if length == ngram or length >= min_words:
            for first in range(count - length + 1):
                out.hashes[grams] = mix64(polynomial(texts.words, first, length)[0])
                out.words[grams], out.lengths[grams] = words + first, length
                grams += 1
        filled += size
        words += count
    return filled, words, grams


@borrowing
def _same(
    text: np.ndarray, starts: np.ndarray, ends: np.ndarray, first: int, index: Ngrams, ngram: int
) -> bool:
    """Whether the words from `first` on are those of the n-gram, byte by byte."""
    for i in range(index.lengths[ngram]):
        word = index.words[ngram] + i
        ours = text[starts[first + i] : ends[first + i]]
        theirs = index.text[index.starts[word] : index.ends[word]]
        if len(ours) != len(theirs) or not equals(ours, 0, len(ours), theirs):
            return False
    return True


@kernel
def _scan(
    texts: Texts, against: PreparedNgrams, starts: np.ndarray, ends: np.ndarray, matches: np.ndarray
) -> int:
    """Fills `matches`, places and n-grams, as far as it reaches; returns how many there are.

    `starts` and `ends` are scratch for the words of one row.
    """
    text, words, index = texts.text, texts.words, against.ngrams
    matched = 0
    for row in range(len(texts.offsets) - 1):
        size = normalize_row(texts, row)
        count, bounded = hash_words(texts, size), False
        for length in against.lengths:
            if count < length:
                break
            value, top = polynomial(words, 0, length)
            for word in range(count - length + 1):
                key = mix64(value)
                leading = key >> np.uint64(against.shift)
                if against.bits[leading >> np.uint64(6)] >> (leading & _LOW) & _ONE:
                    ngram = np.searchsorted(index.hashes, key)
                    if not bounded and ngram < len(index.hashes) and index.hashes[ngram] == key:
                        _find_words(texts, size, starts, ends)
                        bounded = True
                    while ngram < len(index.hashes) and index.hashes[ngram] == key:
                        if index.lengths[ngram] == length and _same(text, starts, ends, word, index, ngram):
                            if matched < len(matches):
                                matches[matched, 0], matches[matched, 1] = row << _ROW | word, ngram
                            matched += 1
                        ngram += 1
                if word + length < count:
                    value = value * GOLDEN_RATIO + words[word + length] - words[word] * top
    return matched


@kernel
def _cut(texts: Texts, places: np.ndarray, piece: int, out: np.ndarray) -> None:
    """Writes the hash of the `piece` words from each of the places (ascending) on."""
    hashed = -1
    for i in range(len(places)):
        row = places[i] >> _ROW
        if row != hashed:
            hash_words(texts, normalize_row(texts, row))
            hashed = row
        out[i] = mix64(polynomial(texts.words, places[i] & _WORDS, piece)[0])
