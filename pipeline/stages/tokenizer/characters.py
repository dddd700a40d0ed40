"""The classes of characters in pre-tokenization patterns, asked of the library that encodes."""

from collections.abc import Iterator
from functools import cache

import numpy as np
from tokenizers import Regex, pre_tokenizers

from pipeline.stages.text import CODE_POINTS

LETTER, NUMBER, WHITE, BREAK, OTHER, NOT_A_DIGIT = 1, 2, 4, 8, 16, 32
CLASSES = {r"\p{L}": LETTER, r"\p{N}": NUMBER, r"\s": WHITE}
SURROGATES = range(0xD800, 0xE000)
LETTERS_END = 0x40000  # the planes after it have no letters, numbers or spaces
BLOCK = 0x800  # code points; the library takes time quadratic in the length of a text


@cache
def classes(digits: bool) -> np.ndarray:
    """The class of every code point, uint8[0x110000]; NOT_A_DIGIT only if `digits`."""
    found = np.full(CODE_POINTS, OTHER, np.uint8)
    runs = list(_runs())
    # All characters of a run have the class of its first: another one begins a run of its own.
    firsts = "".join(chr(first) for first, _ in runs)
    for pattern, flag in CLASSES.items():
        for start, stop in _matches(pattern, firsts):
            for first, end in runs[start:stop]:
                found[first:end] = flag
    if digits:
        found[_none_are_digits()] |= NOT_A_DIGIT
    found[[ord("\r"), ord("\n")]] |= BREAK
    found.setflags(write=False)
    return found


def _runs() -> Iterator[tuple[int, int]]:
    """First and end of each run of code points of one class, or of none."""
    split = pre_tokenizers.Split(Regex("|".join(f"{pattern}+" for pattern in CLASSES)), behavior="isolated")
    for block, characters in _blocks():
        for _, (start, stop) in split.pre_tokenize_str(characters):
            yield block + start, block + stop


def _matches(pattern: str, characters: str) -> Iterator[tuple[int, int]]:
    """Start and stop of each run of characters that a class has."""
    end = 0
    split = pre_tokenizers.Split(Regex(f"{pattern}+"), behavior="removed")
    for _, (start, stop) in [*split.pre_tokenize_str(characters), ("", (len(characters), len(characters)))]:
        if start > end:
            yield end, start
        end = stop


def _blocks() -> Iterator[tuple[int, str]]:
    """The code points that may have a class, as texts, each with its first code point."""
    for first in range(0, LETTERS_END, BLOCK):
        if first not in SURROGATES:
            yield first, "".join(map(chr, range(first, first + BLOCK)))


def _none_are_digits() -> np.ndarray:
    """Which code points `Digits`, the library's pre-tokenizer, leaves together with their neighbours."""
    together = np.ones(CODE_POINTS, np.bool_)
    split = pre_tokenizers.Digits(individual_digits=True)
    for block, characters in _blocks():
        for text, (start, _) in split.pre_tokenize_str("".join(f"{character}a" for character in characters)):
            together[block + start // 2] &= len(text) > 1
    return together
