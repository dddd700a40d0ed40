"""Suffix arrays over token ids: where a run of tokens occurs, and which runs of a text do.

The positions of a block of tokens, sorted by what follows them. All occurrences of a run are then neighbors,
and binary search finds the first and the last (Manber and Myers 1993, "Suffix arrays").
"""

import numpy as np

from pipeline.stages.compiled import borrowing, kernel

# Tokens after which a block ends with the document: bounds the memory of sorting, about 55 bytes a token.
BLOCK_TOKENS = 1 << 23


def blocks(lengths: np.ndarray, at_least: int = BLOCK_TOKENS) -> list[tuple[int, int]]:
    """The first token and the end of each block of whole documents of `lengths` tokens [documents]. Only the
    last may have fewer than `at_least` tokens.
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    found, begin = [], 0
    while len(ends) and begin < ends[-1]:
        last = min(int(np.searchsorted(ends, begin + at_least)), len(ends) - 1)
        found.append((begin, int(ends[last])))
        begin = int(ends[last])
    return found


def suffix_array(tokens: np.ndarray) -> np.ndarray:
    """The positions of `tokens` (uint16 or uint32 [n], n < 2^31) in the order of what follows them; of two
    suffixes of which one begins the other, the shorter first. uint32 [n].

    Sorts by the first 4 tokens (uint32: 2) in a word of 8 bytes, then those that tie by twice as many tokens
    each time. About 2 M tokens a second; text that repeats itself takes longer, by the logarithm.
    """
    n, packed = len(tokens), 8 // tokens.itemsize
    keys = np.zeros(n, np.uint64)
    for place in range(packed):
        shift = np.uint64(8 * tokens.itemsize * (packed - 1 - place))
        keys[: max(0, n - place)] |= tokens[place:].astype(np.uint64) << shift
    order = np.argsort(keys).astype(np.uint32)
    keys = keys[order]
    first = _firsts(keys)
    del keys
    ranks = np.empty(n, np.uint32)
    ranks[order] = first
    compared = packed
    ties = np.flatnonzero(_tied(first)).astype(np.uint32)
    del first
    while len(ties):
        suffixes = order[ties]
        keys = ranks[suffixes].astype(np.uint64) << np.uint64(32)
        after = suffixes.astype(np.int64) + compared
        inside = after < n
        # What ends is shorter, and comes before all that go on.
        later = ranks[np.where(inside, after, 0)] + (compared + 1)
        keys |= np.where(inside, later, n - after + compared).astype(np.uint64)
        del after, inside, later
        # stable is five times faster where text repeats itself, whose keys are nearly in order
        sorting = np.argsort(keys, kind="stable")
        suffixes, keys = suffixes[sorting], keys[sorting]
        del sorting
        order[ties] = suffixes
        first = ties[_firsts(keys)]
        del keys
        ranks[suffixes] = first
        ties = ties[_tied(first)]
        compared *= 2
    return order


def _firsts(keys: np.ndarray) -> np.ndarray:
    """The first place of each key among sorted `keys` [n], uint32 [n]."""
    places = np.arange(len(keys), dtype=np.uint32)
    places[1:][keys[1:] == keys[:-1]] = 0
    return np.maximum.accumulate(places)


def _tied(first: np.ndarray) -> np.ndarray:
    """Which of sorted keys are not alone, given the first place of each; bool [n]."""
    tied = np.zeros(len(first), np.bool_)
    same = first[1:] == first[:-1]
    tied[1:] |= same
    tied[:-1] |= same
    return tied


@kernel
def occurrences(tokens: np.ndarray, suffixes: np.ndarray, run: np.ndarray) -> tuple[int, int]:
    """The places in `suffixes` of the suffixes of `tokens` that begin with `run`: the first, and the end."""
    first = _bound(tokens, suffixes, run, 0, False)
    return first, _bound(tokens, suffixes, run, first, True)


@kernel
def maximal_runs(tokens: np.ndarray, suffixes: np.ndarray, text: np.ndarray, least: int) -> np.ndarray:
    """How many tokens of `text` [n] from each position on occur in `tokens` in this order, int64 [n]; 0 where
    these are fewer than `least`, or lie in a run that begins earlier.

    `text` is looked up in pieces of half of `least`, since a run holds a whole one, and each run once, so
    that time grows with the length of `text` also where all of it occurs.
    """
    n, piece, end = len(text), max(1, least // 2), 0  # of the last run
    found, start = np.zeros(n, np.int64), 0
    while start <= n - least:
        last = end + 1 - least  # a run from up to here that goes on after `end` holds these tokens
        if start <= last:
            if end == n or not _occurs(tokens, suffixes, text[last : end + 1]):
                start = last + 1
                continue
            while start < last:
                middle = (start + last) // 2
                if _occurs(tokens, suffixes, text[middle : end + 1]):
                    last = middle
                else:
                    start = middle + 1
        else:
            whole = (start + piece - 1) // piece * piece
            if not _occurs(tokens, suffixes, text[whole : whole + piece]):
                start = whole + 1
                continue
        place, length = _bound(tokens, suffixes, text[start:], 0, False), 0
        for other in range(max(0, place - 1), min(len(suffixes), place + 1)):
            length = max(length, _common(tokens, suffixes[other], text[start:]))
        if length >= least:
            found[start], end = length, start + length
        start += 1
    return found


@borrowing
def _occurs(tokens: np.ndarray, suffixes: np.ndarray, run: np.ndarray) -> bool:
    place = _bound(tokens, suffixes, run, 0, False)
    return place < len(suffixes) and _common(tokens, suffixes[place], run) == len(run)


@borrowing
def _common(tokens: np.ndarray, start: int, run: np.ndarray) -> int:
    """How many tokens the suffix from `start` on has in common with the beginning of `run`."""
    most = min(len(tokens) - start, len(run))
    same = 0
    while same < most and tokens[start + same] == run[same]:
        same += 1
    return same


@borrowing
def _bound(tokens: np.ndarray, suffixes: np.ndarray, run: np.ndarray, low: int, after: bool) -> int:
    """The first place from `low` on of a suffix that does not come before `run` or, if `after`, that comes
    after all that begin with it.
    """
    high = len(suffixes)
    while low < high:
        middle = (low + high) // 2
        start = np.int64(suffixes[middle])
        same = _common(tokens, start, run)
        if same == len(run):
            before = after
        else:
            before = start + same == len(tokens) or tokens[start + same] < run[same]
        if before:
            low = middle + 1
        else:
            high = middle
    return low
