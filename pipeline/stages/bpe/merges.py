"""Byte-pair merges of counted words: the same ones, in the same order, as Hugging Face's `BpeTrainer`.

Sennrich et al. 2016 (arXiv:1508.07909), incrementally: a merge visits only the words that hold its pair. The
pair that occurs most often comes first; of equals, the one with the lowest ids.
"""

from collections.abc import Callable, Sequence

import numpy as np

from pipeline.stages.bpe.counts import CountedWords
from pipeline.stages.compiled import borrowing, kernel
from pipeline.stages.text import equals

NONE = -1
# Columns of `pairs`: left id << 32 | right id; how often the two stand together; the words in which they came
# together since the last merge, as the first of a list of nodes; the last such word.
KEY, COUNT, NODE, LAST_WORD = range(4)
# Columns of `nodes`.
WORD, NEXT = range(2)
# Columns of `heap`: the count of a pair when the heap was ordered, the pair, the words to look for it in.
ORDERED_BY, PAIR, WORDS = range(3)
# Of `used`: how many rows of an array are in use.
PAIRS, NODES, CHANGED, HEAP, TOKENS, MERGES = range(6)
# What stands before the symbols of a word: how often it occurs, how many symbols there are.
OCCURRENCES, LENGTH, HEADER = range(3)
REACHED, TEXT_IS_FULL, SLOTS_ARE_FULL, NO_PAIR = range(4)
AT_ONCE = 100  # tokens; the first ones may take seconds
FIRST_SLOTS = 1 << 18  # room for all pairs of bytes


@borrowing
def _mixed(key: int) -> np.int64:
    h = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((h ^ h >> np.uint64(32)) & np.uint64(0x7FFFFFFFFFFFFFFF))


@borrowing
def _slot_of_pair(slots: np.ndarray, pairs: np.ndarray, key: int) -> int:
    """Where in the hash table a pair is, or where it belongs."""
    slot = _mixed(key) & (len(slots) - 1)
    while slots[slot] >= 0 and pairs[slots[slot], KEY] != key:
        slot = (slot + 1) & (len(slots) - 1)
    return slot


@kernel
def _enter(slots: np.ndarray, pairs: np.ndarray, known: int) -> None:
    """Puts the first `known` pairs into a hash table, which is empty."""
    for pair in range(known):
        slots[_slot_of_pair(slots, pairs, pairs[pair, KEY])] = pair


@borrowing
def _change(
    slots: np.ndarray,
    pairs: np.ndarray,
    nodes: np.ndarray,
    changed: np.ndarray,
    used: np.ndarray,
    key: int,
    amount: int,
    word: int,
) -> None:
    """Adds `amount` to the count of a pair because of `word`."""
    slot = _slot_of_pair(slots, pairs, key)
    pair = slots[slot]
    if pair < 0:
        pair = slots[slot] = used[PAIRS]
        used[PAIRS] += 1
        pairs[pair, KEY], pairs[pair, COUNT] = key, 0
        pairs[pair, NODE] = pairs[pair, LAST_WORD] = NONE
    pairs[pair, COUNT] += amount
    if amount > 0 and pairs[pair, LAST_WORD] != word:
        if pairs[pair, NODE] == NONE:
            changed[used[CHANGED]] = pair
            used[CHANGED] += 1
        nodes[used[NODES], WORD], nodes[used[NODES], NEXT] = word, pairs[pair, NODE]
        pairs[pair, NODE], pairs[pair, LAST_WORD] = used[NODES], word
        used[NODES] += 1


@borrowing
def _precedes(heap: np.ndarray, a: int, b: int, pairs: np.ndarray) -> bool:
    if heap[a, ORDERED_BY] != heap[b, ORDERED_BY]:
        return heap[a, ORDERED_BY] > heap[b, ORDERED_BY]
    return pairs[heap[a, PAIR], KEY] < pairs[heap[b, PAIR], KEY]


@borrowing
def _settle(heap: np.ndarray, size: int, i: int, pairs: np.ndarray) -> None:
    """Moves row `i`, the only one out of place, to where it belongs."""
    while True:
        other = (i - 1) // 2
        if i == 0 or not _precedes(heap, i, other, pairs):
            other = 2 * i + 1
            if other + 1 < size and _precedes(heap, other + 1, other, pairs):
                other += 1
            if other >= size or not _precedes(heap, other, i, pairs):
                return
        for column in range(3):
            heap[i, column], heap[other, column] = heap[other, column], heap[i, column]
        i = other


@borrowing
def _queue(heap: np.ndarray, pairs: np.ndarray, changed: np.ndarray, used: np.ndarray) -> None:
    """Puts the pairs that came together since the last merge into the heap."""
    for i in range(used[CHANGED]):
        pair = changed[i]
        if pairs[pair, COUNT] > 0:
            row = used[HEAP]
            heap[row, ORDERED_BY], heap[row, PAIR] = pairs[pair, COUNT], pair
            heap[row, WORDS] = pairs[pair, NODE]
            used[HEAP] += 1
            _settle(heap, used[HEAP], row, pairs)
        pairs[pair, NODE] = pairs[pair, LAST_WORD] = NONE
    used[CHANGED] = 0


@borrowing
def _slot_of_token(slots: np.ndarray, text: np.ndarray, starts: np.ndarray, start: int, end: int) -> int:
    """Where in the hash table the token with the bytes `text[start:end]` is, or where it belongs."""
    h = end - start
    for i in range(start, end):
        h = _mixed(h ^ text[i])
    slot = h & (len(slots) - 1)
    while slots[slot] >= 0:
        known = text[starts[slots[slot]] : starts[slots[slot] + 1]]
        if len(known) == end - start and equals(text, start, end, known):
            break
        slot = (slot + 1) & (len(slots) - 1)
    return slot


@borrowing
def _join(text: np.ndarray, starts: np.ndarray, tokens: int, left: int, right: int) -> None:
    """Writes the bytes of two tokens as those of the next one, which ends at `starts[tokens + 1]`."""
    end = starts[tokens]
    for token in (left, right):
        for i in range(starts[token], starts[token + 1]):
            text[end] = text[i]
            end += 1
    starts[tokens + 1] = end


@borrowing
def _count_pairs(
    symbols: np.ndarray,
    slots: np.ndarray,
    pairs: np.ndarray,
    nodes: np.ndarray,
    changed: np.ndarray,
    used: np.ndarray,
) -> None:
    """Counts the pairs of all words as they are at first."""
    word = 0
    while word < len(symbols):
        first = word + HEADER
        for i in range(first, first + symbols[word + LENGTH] - 1):
            key = symbols[i] << 32 | symbols[i + 1]
            _change(slots, pairs, nodes, changed, used, key, symbols[word + OCCURRENCES], word)
        word = first + symbols[word + LENGTH]


@kernel
def _merge(
    symbols: np.ndarray,
    text: np.ndarray,
    token_starts: np.ndarray,
    token_slots: np.ndarray,
    slots: np.ndarray,
    pairs: np.ndarray,
    heap: np.ndarray,
    nodes: np.ndarray,
    changed: np.ndarray,
    merges: np.ndarray,
    used: np.ndarray,
    most: int,
    least: int,
) -> int:
    """Merges until there are `most` tokens, `text` or `slots` needs more room, or no pair occurs `least`
    times. Returns which of these it was.

    `symbols`: the words one after the other, each with its header and the ids of its bytes, which are
    rewritten. `text`, `token_starts`: the bytes of the tokens. Appends to `merges` rows of (left, right, id).
    """
    if used[PAIRS] == 0:
        _count_pairs(symbols, slots, pairs, nodes, changed, used)
        _queue(heap, pairs, changed, used)
        for token in range(used[TOKENS]):
            slot = _slot_of_token(
                token_slots, text, token_starts, token_starts[token], token_starts[token + 1]
            )
            token_slots[slot] = token
    while used[TOKENS] < most:
        if used[HEAP] == 0:
            return NO_PAIR
        pair, node = heap[0, PAIR], heap[0, WORDS]
        if heap[0, ORDERED_BY] != pairs[pair, COUNT]:
            heap[0, ORDERED_BY] = pairs[pair, COUNT]
            _settle(heap, used[HEAP], 0, pairs)
            continue
        if pairs[pair, COUNT] < least:
            return NO_PAIR
        left, right, tokens = pairs[pair, KEY] >> 32, pairs[pair, KEY] & 0xFFFFFFFF, used[TOKENS]
        size = token_starts[left + 1] - token_starts[left] + token_starts[right + 1] - token_starts[right]
        if token_starts[tokens] + size > len(text):
            return TEXT_IS_FULL
        if 2 * (used[PAIRS] + 2 * tokens + 2) > len(slots):  # half full after this merge, at most
            return SLOTS_ARE_FULL
        used[HEAP] -= 1
        for column in range(3):
            heap[0, column] = heap[used[HEAP], column]
        _settle(heap, used[HEAP], 0, pairs)
        _join(text, token_starts, tokens, left, right)
        slot = _slot_of_token(token_slots, text, token_starts, token_starts[tokens], token_starts[tokens + 1])
        if token_slots[slot] < 0:
            token_slots[slot] = tokens
            used[TOKENS] += 1
        new = token_slots[slot]
        done = used[MERGES]
        merges[done, 0], merges[done, 1], merges[done, 2] = left, right, new
        used[MERGES] += 1
        while node != NONE:
            word = nodes[node, WORD]
            node = nodes[node, NEXT]
            count, start = symbols[word + OCCURRENCES], word + HEADER
            end = start + symbols[word + LENGTH]
            write = read = start
            while read < end:
                symbol = symbols[read]
                if symbol == left and read + 1 < end and symbols[read + 1] == right:
                    symbol = new
                    if write > start:
                        before = symbols[write - 1] << 32
                        _change(slots, pairs, nodes, changed, used, before | left, -count, word)
                        _change(slots, pairs, nodes, changed, used, before | new, count, word)
                    if read + 2 < end:
                        after = symbols[read + 2]
                        _change(slots, pairs, nodes, changed, used, right << 32 | after, -count, word)
                        _change(slots, pairs, nodes, changed, used, new << 32 | after, count, word)
                    read += 1
                symbols[write] = symbol
                write += 1
                read += 1
            symbols[word + LENGTH] = write - start
        _queue(heap, pairs, changed, used)
    return REACHED


def merge(
    words: CountedWords,
    tokens: Sequence[bytes],
    ids: np.ndarray,
    vocab_size: int,
    least: int,
    progress: Callable[[int, int], None],
) -> tuple[list[bytes], np.ndarray]:
    """The bytes of all tokens, at most `vocab_size` with the first ones, `tokens`, and the merges as rows
    (left, right, id). `ids`: the token of each byte. Pairs that occur less than `least` times stay apart.
    Calls `progress` now and then with the number of new tokens and how many there are to be.
    """
    text = np.frombuffer(b"".join(tokens), np.uint8).copy()
    starts = np.zeros(vocab_size + 1, np.int64)
    starts[1 : len(tokens) + 1] = np.cumsum([len(token) for token in tokens])
    symbols = _symbols(words, ids)
    # A merge takes one symbol away and brings at most two pairs. Memory that is not used costs nothing.
    room = 3 * len(words.data) + 1
    pairs, heap = np.empty((room, 4), np.int64), np.empty((room, 3), np.int64)
    nodes, merges = np.empty((room, 2), np.int64), np.empty((room, 3), np.int64)
    changed, used = np.empty(room, np.int64), np.zeros(6, np.int64)
    used[TOKENS] = len(tokens)
    token_slots = np.full(1 << (2 * vocab_size).bit_length(), NONE)
    slots = np.full(FIRST_SLOTS, NONE)
    outcome = REACHED
    while used[TOKENS] < vocab_size and outcome != NO_PAIR:
        most = min(used[TOKENS] + AT_ONCE, vocab_size)
        outcome = _merge(
            symbols, text, starts, token_slots, slots, pairs, heap, nodes, changed, merges, used, most, least
        )
        progress(int(used[TOKENS]) - len(tokens), vocab_size - len(tokens))
        if outcome == TEXT_IS_FULL:
            text = np.concatenate([text, np.empty_like(text)])
        elif outcome == SLOTS_ARE_FULL:
            slots = np.full(2 * len(slots), NONE)
            _enter(slots, pairs, used[PAIRS])
    joined = text.tobytes()
    reached = used[TOKENS]
    return [joined[starts[token] : starts[token + 1]] for token in range(reached)], merges[: used[MERGES]]


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
