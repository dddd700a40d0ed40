"""Byte-pair merges of counted words: the same ones, in the same order, as Hugging Face's `BpeTrainer`.

Sennrich et al. 2016 (arXiv:1508.07909), incrementally: a merge visits only the words that hold its pair. The
pair that occurs most often comes first; of equals, the one with the lowest ids.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from pipeline.stages.bpe.counts import CountedWords
from pipeline.stages.compiled import borrowing, kernel
from pipeline.stages.hashing import GOLDEN_RATIO
from pipeline.stages.text import equals

NONE = -1
# Columns of `Pairs.rows`: left id << 32 | right id; how often the two stand together; the words in which they
# came together since the last merge, as the first of a list of nodes; the last such word.
KEY, COUNT, NODE, LAST_WORD = range(4)
# Columns of `Pairs.nodes`.
WORD, NEXT = range(2)
# Columns of `Pairs.heap`: the count of a pair when the heap was ordered, the pair, the words that hold it.
ORDERED_BY, PAIR, WORDS = range(3)
# Of `used`: how many rows of an array are in use.
PAIRS, NODES, CHANGED, HEAP, TOKENS, MERGES = range(6)
# What stands before the symbols of a word: how often it occurs, how many symbols there are.
OCCURRENCES, LENGTH, HEADER = range(3)
REACHED, TEXT_IS_FULL, SLOTS_ARE_FULL, NO_PAIR = range(4)
AT_ONCE = 100  # tokens; the first ones may take seconds
FIRST_SLOTS = 1 << 18  # room for all pairs of bytes


class Tokens(NamedTuple):
    """All tokens, and the merges that made them."""

    text: np.ndarray  # the bytes of one token after the other
    starts: np.ndarray  # in `text`
    slots: np.ndarray  # a hash table of tokens by their bytes
    merges: np.ndarray  # rows of (left, right, id)


class Pairs(NamedTuple):
    """All pairs of tokens that have ever stood together in a word."""

    rows: np.ndarray
    slots: np.ndarray  # a hash table of rows by their key
    nodes: np.ndarray
    changed: np.ndarray  # the rows that came together since the last merge
    heap: np.ndarray


@borrowing
def _mixed(key: int) -> np.int64:
    h = np.uint64(key) * GOLDEN_RATIO
    return np.int64((h ^ h >> np.uint64(32)) & np.uint64(0x7FFFFFFFFFFFFFFF))


@borrowing
def _slot_of_pair(pairs: Pairs, key: int) -> int:
    """Where in the hash table a pair is, or where it belongs."""
    mask = len(pairs.slots) - 1
    slot = _mixed(key) & mask
    while pairs.slots[slot] >= 0 and pairs.rows[pairs.slots[slot], KEY] != key:
        slot = (slot + 1) & mask
    return slot


@kernel
def _enter(pairs: Pairs, known: int) -> None:
    """Puts the first `known` pairs into the hash table, which is empty."""
    for pair in range(known):
        pairs.slots[_slot_of_pair(pairs, pairs.rows[pair, KEY])] = pair


@borrowing
def _change(pairs: Pairs, used: np.ndarray, key: int, amount: int, word: int) -> None:
    """Adds `amount` to the count of a pair because of `word`."""
    slot = _slot_of_pair(pairs, key)
    rows, pair = pairs.rows, pairs.slots[slot]
    if pair < 0:
        pair = pairs.slots[slot] = used[PAIRS]
        used[PAIRS] += 1
        rows[pair, KEY], rows[pair, COUNT] = key, 0
        rows[pair, NODE] = rows[pair, LAST_WORD] = NONE
    rows[pair, COUNT] += amount
    if amount > 0 and rows[pair, LAST_WORD] != word:
        if rows[pair, NODE] == NONE:
            pairs.changed[used[CHANGED]] = pair
            used[CHANGED] += 1
        node = used[NODES]
        pairs.nodes[node, WORD], pairs.nodes[node, NEXT] = word, rows[pair, NODE]
        rows[pair, NODE], rows[pair, LAST_WORD] = node, word
        used[NODES] += 1


@borrowing
def _precedes(pairs: Pairs, a: int, b: int) -> bool:
    heap = pairs.heap
    if heap[a, ORDERED_BY] != heap[b, ORDERED_BY]:
        return heap[a, ORDERED_BY] > heap[b, ORDERED_BY]
    return pairs.rows[heap[a, PAIR], KEY] < pairs.rows[heap[b, PAIR], KEY]


@borrowing
def _settle(pairs: Pairs, size: int, i: int) -> None:
    """Moves row `i` of the heap, the only one out of place, to where it belongs."""
    heap = pairs.heap
    while True:
        other = (i - 1) // 2
        if i == 0 or not _precedes(pairs, i, other):
            other = 2 * i + 1
            if other + 1 < size and _precedes(pairs, other + 1, other):
                other += 1
            if other >= size or not _precedes(pairs, other, i):
                return
        for column in range(3):
            heap[i, column], heap[other, column] = heap[other, column], heap[i, column]
        i = other


@borrowing
def _queue(pairs: Pairs, used: np.ndarray) -> None:
    """Puts the pairs that came together since the last merge into the heap."""
    for i in range(used[CHANGED]):
        pair = pairs.changed[i]
        if pairs.rows[pair, COUNT] > 0:
            row = used[HEAP]
            pairs.heap[row, ORDERED_BY], pairs.heap[row, PAIR] = pairs.rows[pair, COUNT], pair
            pairs.heap[row, WORDS] = pairs.rows[pair, NODE]
            used[HEAP] += 1
            _settle(pairs, used[HEAP], row)
        pairs.rows[pair, NODE] = pairs.rows[pair, LAST_WORD] = NONE
    used[CHANGED] = 0


@borrowing
def _most_frequent(pairs: Pairs, used: np.ndarray) -> int:
    """The pair that occurs most often, the first of the heap. NONE if the heap is empty."""
    while used[HEAP] > 0:
        pair = pairs.heap[0, PAIR]
        if pairs.heap[0, ORDERED_BY] == pairs.rows[pair, COUNT]:
            return pair
        pairs.heap[0, ORDERED_BY] = pairs.rows[pair, COUNT]
        _settle(pairs, used[HEAP], 0)
    return NONE


@borrowing
def _slot_of_token(tokens: Tokens, token: int) -> int:
    """Where in the hash table the token with these bytes is, or where it belongs."""
    start, end = tokens.starts[token], tokens.starts[token + 1]
    h = end - start
    for i in range(start, end):
        h = _mixed(h ^ tokens.text[i])
    slot = h & (len(tokens.slots) - 1)
    while tokens.slots[slot] >= 0:
        other = tokens.slots[slot]
        known = tokens.text[tokens.starts[other] : tokens.starts[other + 1]]
        if len(known) == end - start and equals(tokens.text, start, end, known):
            break
        slot = (slot + 1) & (len(tokens.slots) - 1)
    return slot


@borrowing
def _joined(tokens: Tokens, used: np.ndarray, left: int, right: int) -> int:
    """Enters the merge of two tokens. Returns the token with their bytes, which may be an old one."""
    new = used[TOKENS]
    end = tokens.starts[new]
    for token in (left, right):
        for i in range(tokens.starts[token], tokens.starts[token + 1]):
            tokens.text[end] = tokens.text[i]
            end += 1
    tokens.starts[new + 1] = end
    slot = _slot_of_token(tokens, new)
    if tokens.slots[slot] < 0:
        tokens.slots[slot] = new
        used[TOKENS] += 1
    merge = tokens.merges[used[MERGES]]
    merge[0], merge[1], merge[2] = left, right, tokens.slots[slot]
    used[MERGES] += 1
    return tokens.slots[slot]


@borrowing
def _begin(symbols: np.ndarray, tokens: Tokens, pairs: Pairs, used: np.ndarray) -> None:
    """Counts the pairs of all words as they are at first, and enters the first tokens."""
    word = 0
    while word < len(symbols):
        first = word + HEADER
        for i in range(first, first + symbols[word + LENGTH] - 1):
            key = symbols[i] << 32 | symbols[i + 1]
            _change(pairs, used, key, symbols[word + OCCURRENCES], word)
        word = first + symbols[word + LENGTH]
    _queue(pairs, used)
    for token in range(used[TOKENS]):
        tokens.slots[_slot_of_token(tokens, token)] = token


@borrowing
def _replace(symbols: np.ndarray, node: int, key: int, new: int, pairs: Pairs, used: np.ndarray) -> None:
    """Writes the token `new` for each pair `key` in the words of the list `node`, and counts the pairs that
    go and come.
    """
    left, right = key >> 32, key & 0xFFFFFFFF
    while node != NONE:
        word = pairs.nodes[node, WORD]
        node = pairs.nodes[node, NEXT]
        count, start = symbols[word + OCCURRENCES], word + HEADER
        end = start + symbols[word + LENGTH]
        write = read = start
        while read < end:
            symbol = symbols[read]
            if symbol == left and read + 1 < end and symbols[read + 1] == right:
                symbol = new
                if write > start:
                    before = symbols[write - 1] << 32
                    _change(pairs, used, before | left, -count, word)
                    _change(pairs, used, before | new, count, word)
                if read + 2 < end:
                    after = symbols[read + 2]
                    _change(pairs, used, right << 32 | after, -count, word)
                    _change(pairs, used, new << 32 | after, count, word)
                read += 1
            symbols[write] = symbol
            write += 1
            read += 1
        symbols[word + LENGTH] = write - start


@kernel
def _merge(symbols: np.ndarray, tokens: Tokens, pairs: Pairs, used: np.ndarray, most: int, least: int) -> int:
    """Merges until there are `most` tokens, `tokens.text` or `pairs.slots` needs more room, or no pair occurs
    `least` times. Returns which of these it was.

    `symbols`: the words one after the other, each with its header and the ids of its bytes, which are
    rewritten.
    """
    if used[PAIRS] == 0:
        _begin(symbols, tokens, pairs, used)
    starts = tokens.starts
    while used[TOKENS] < most:
        pair = _most_frequent(pairs, used)
        if pair == NONE or pairs.rows[pair, COUNT] < least:
            return NO_PAIR
        key, node = pairs.rows[pair, KEY], pairs.heap[0, WORDS]
        left, right, known = key >> 32, key & 0xFFFFFFFF, used[TOKENS]
        size = starts[left + 1] - starts[left] + starts[right + 1] - starts[right]
        if starts[known] + size > len(tokens.text):
            return TEXT_IS_FULL
        if 2 * (used[PAIRS] + 2 * known + 2) > len(pairs.slots):  # half full after this merge, at most
            return SLOTS_ARE_FULL
        used[HEAP] -= 1
        for column in range(3):
            pairs.heap[0, column] = pairs.heap[used[HEAP], column]
        _settle(pairs, used[HEAP], 0)
        new = _joined(tokens, used, left, right)
        _replace(symbols, node, key, new, pairs, used)
        _queue(pairs, used)
    return REACHED


def merge(
    words: CountedWords,
    tokens: Sequence[bytes],
    ids: np.ndarray,
    *,
    vocab_size: int,
    least: int,
    progress: Callable[[int, int], None],
) -> tuple[list[bytes], np.ndarray]:
    """The bytes of all tokens, at most `vocab_size` with the first ones, `tokens`, and the merges as rows
    (left, right, id). `ids`: the token of each byte. Pairs that occur less than `least` times stay apart.
    Calls `progress` now and then with the number of new tokens and how many there are to be.
    """
    symbols = _symbols(words, ids)
    starts = np.zeros(vocab_size + 1, np.int64)
    starts[1 : len(tokens) + 1] = np.cumsum([len(token) for token in tokens])
    # A merge takes one symbol away and brings at most two pairs. Memory that is not used costs nothing.
    room = 3 * len(words.data) + 1
    known = Tokens(
        text=np.frombuffer(b"".join(tokens), np.uint8).copy(),
        starts=starts,
        slots=np.full(1 << (2 * vocab_size).bit_length(), NONE),
        merges=np.empty((room, 3), np.int64),
    )
    pairs = Pairs(
        rows=np.empty((room, 4), np.int64),
        slots=np.full(FIRST_SLOTS, NONE),
        nodes=np.empty((room, 2), np.int64),
        changed=np.empty(room, np.int64),
        heap=np.empty((room, 3), np.int64),
    )
    used = np.zeros(6, np.int64)
    used[TOKENS] = len(tokens)
    outcome = REACHED
    while used[TOKENS] < vocab_size and outcome != NO_PAIR:
        most = min(used[TOKENS] + AT_ONCE, vocab_size)
        outcome = _merge(symbols, known, pairs, used, most, least)
        progress(int(used[TOKENS]) - len(tokens), vocab_size - len(tokens))
        if outcome == TEXT_IS_FULL:
            known = known._replace(text=np.concatenate([known.text, np.empty_like(known.text)]))
        elif outcome == SLOTS_ARE_FULL:
            pairs = pairs._replace(slots=np.full(2 * len(pairs.slots), NONE))
            _enter(pairs, used[PAIRS])
    text = known.text.tobytes()
    reached = used[TOKENS]
    return [text[starts[i] : starts[i + 1]] for i in range(reached)], known.merges[: used[MERGES]]


def _symbols(words: CountedWords, ids: np.ndarray) -> np.ndarray:
    """Every word as its header and the ids of its bytes, one after the other."""
    lengths = np.diff(words.starts)
    symbols = np.empty(len(words.data) + HEADER * len(lengths), np.int64)
    headers = words.starts[:-1] + HEADER * np.arange(len(lengths))
    symbols[np.arange(len(words.data)) + HEADER * np.repeat(np.arange(1, len(lengths) + 1), lengths)] = (
        ids.astype(np.int64)[words.data]
    )
    symbols[headers + OCCURRENCES], symbols[headers + LENGTH] = words.counts, lengths
    return symbols
