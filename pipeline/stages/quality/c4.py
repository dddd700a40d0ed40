"""C4's line rules: the lines that C4 would keep, and their content (Raffel et al. 2020, section 2.2)."""

from enum import IntEnum

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.quality.unicode import ALNUM, SPACE, TERMINAL
from pipeline.stages.quality.walk import Words
from pipeline.stages.text import character_before, equals, last_word_end

MIN_LINE_WORDS = 3
MAX_WORD_LENGTH = 1000  # characters
PHRASES = (
    "lorem ipsum",
    "javascript",
    "terms of use",
    "privacy policy",
    "cookie policy",
    "uses cookies",
    "use of cookies",
    "use cookies",
)


class C4(IntEnum):
    """Columns of the result of `c4`.

    A line is kept if it ends like a sentence, has at least 3 words, no word that is too long, and of PHRASES
    at most the first.
    """

    SENTENCES = 0  # of kept lines
    LOREM_IPSUM = 1  # 1 where such a line has the phrase
    CURLY_BRACKET = 2  # 1 where such a line, without javascript, has a curly bracket


_BEGINNING = 4  # bytes of a phrase that are looked for before all of it is
_LOREM_IPSUM, _JAVASCRIPT, _POLICY = 1, 2, 0xFC  # bits of PHRASES
_DOT, _CURLY, _OPEN, _CLOSE, _A, _Z, _0, _9 = (ord(character) for character in ".{[]AZ09")
# Curly quotes end a line for a reader, as straight ones do.
_LINE_ENDS = tuple(ord(character) for character in ".?!\"'\u201d\u2019")
_CLOSERS = tuple(ord(character) for character in "\"')]}\u201d\u2019\u00bb")
_MARKS = (np.frombuffer(b"[edit]", np.uint8), np.frombuffer(b"[citation needed]", np.uint8))


def _bits_by_byte() -> np.ndarray:
    """int64[256], by byte in either case: byte i of an entry has the bits of the PHRASES with it at i."""
    found = np.zeros(256, np.int64)
    for bit, phrase in enumerate(PHRASES):
        for place, character in enumerate(phrase[:_BEGINNING]):
            for byte in {ord(character), ord(character.upper())}:
                found[byte] |= 1 << (8 * place + bit)
    return found


_PHRASES = np.array(PHRASES, "S").view(np.uint8).reshape(len(PHRASES), -1)  # padded with zeros
_BEGINS = _bits_by_byte()


@borrowing
def c4(data: np.ndarray, classes: np.ndarray, words: Words, lines: int, row: np.ndarray) -> None:
    """Fills the row `row` of the document whose `words` and lines with words are known."""
    for line in range(lines):
        first, last = words.line_words[line - 1] if line else 0, words.line_words[line]
        start, stop = np.int64(words.starts[first]), np.int64(words.stops[last - 1])
        uncited = _without_citations(data, start, stop, classes)
        if last - first >= MIN_LINE_WORDS and _ends_like_a_sentence(data, start, uncited):
            longest, sentences = _longest_word_and_sentences(data, classes, words, first, last, uncited)
            if longest <= MAX_WORD_LENGTH:
                has_curly, bits = _search(data, start, stop)
                if bits & _LOREM_IPSUM:
                    row[C4.LOREM_IPSUM] = 1
                if not bits & _JAVASCRIPT:
                    row[C4.CURLY_BRACKET] |= has_curly
                    row[C4.SENTENCES] += 0 if bits & _POLICY else sentences


@borrowing
def _without_citations(data: np.ndarray, start: int, stop: int, classes: np.ndarray) -> int:
    """The end of the line without trailing citations (`[12]`, `[]`, `[edit]`) and the space before."""
    while stop > start and data[stop - 1] == _CLOSE:
        opening = _citation_start(data, start, stop)
        for mark in _MARKS:
            if equals(data, stop - mark.size, stop, mark):
                opening = stop - mark.size
        if opening < start:
            break
        stop = last_word_end(data, start, opening, classes, SPACE)
    return stop


@borrowing
def _ends_like_a_sentence(data: np.ndarray, start: int, stop: int) -> bool:
    if stop == start:
        return False
    is_ellipsis = stop - start >= 3 and data[stop - 1] == data[stop - 2] == data[stop - 3] == _DOT
    return character_before(data, start, stop)[0] in _LINE_ENDS and not is_ellipsis


@borrowing
def _longest_word_and_sentences(
    data: np.ndarray, classes: np.ndarray, words: Words, first: int, last: int, uncited: int
) -> tuple[int, int]:
    """Characters of the line's longest word, and the number of sentences in its words before `uncited`.

    After a word that ends a sentence, the next word of more than symbols begins a new one.
    """
    longest = 0
    sentences, ended = 1, False
    for word in range(first, last):
        length = words.characters[word + 1] - words.characters[word]
        longest = max(longest, length)
        if words.starts[word] < uncited:
            if ended and not words.symbols_only[word]:
                sentences += 1
                ended = False
            start, stop = np.int64(words.starts[word]), np.int64(words.stops[word])
            ended = ended or _ends_a_sentence(data, classes, start, stop, length)
    return longest, sentences


@borrowing
def _ends_a_sentence(data: np.ndarray, classes: np.ndarray, start: int, stop: int, length: int) -> bool:
    """Whether the word ends in a terminator of any script, before closing quotes, brackets and numbered
    citations.

    Neither several dots nor the dot of an initial such as `J.` end a sentence.
    """
    if stop > start and data[stop - 1] < 0x80 and classes[data[stop - 1]] & ALNUM:
        return False  # as most words
    while stop > start:
        if data[stop - 1] == _CLOSE:
            opening = _citation_start(data, start, stop)
            stop = opening if opening >= 0 else stop - 1
            continue
        code_point, position = character_before(data, start, stop)
        if code_point == _DOT:
            return (position == start or data[position - 1] != _DOT) and not (
                length == 2 and _A <= data[start] <= _Z
            )
        if classes[code_point] & TERMINAL:
            return not (length == 2 and _A <= data[start] <= _Z)
        if code_point not in _CLOSERS:
            return False
        stop = position
    return False


@borrowing
def _citation_start(data: np.ndarray, start: int, stop: int) -> int:
    """Where the `[12]` or `[]` that ends at `stop` begins, or -1."""
    opening = stop - 2
    while opening >= start and _0 <= data[opening] <= _9:
        opening -= 1
    return opening if opening >= start and data[opening] == _OPEN else -1


@borrowing
def _search(data: np.ndarray, start: int, stop: int) -> tuple[bool, int]:
    """Whether the line has a `{`, and the bits of its phrases, in upper or lower case."""
    has_curly = False
    bits = begun = 0
    for position in range(np.uint64(start), np.uint64(stop)):  # of a signed index numba checks the sign
        has_curly |= data[position] == _CURLY
        # byte i of `begun`: the phrases whose first i + 1 bytes end here
        begun = (begun << 8 | 0xFF) & _BEGINS[data[position]]
        if begun >> 8 * (_BEGINNING - 1):
            for bit in range(len(PHRASES)):
                begins = begun >> 8 * (_BEGINNING - 1) + bit & 1
                if begins and _holds(data, np.int64(position) + 1 - _BEGINNING, stop, _PHRASES[bit]):
                    bits |= 1 << bit
    return has_curly, bits


@borrowing
def _holds(data: np.ndarray, start: int, stop: int, phrase: np.ndarray) -> bool:
    for i in range(phrase.size):
        if phrase[i] == 0:
            break
        if start + i >= stop or data[start + i] + 32 * (_A <= data[start + i] <= _Z) != phrase[i]:
            return False
    return True
