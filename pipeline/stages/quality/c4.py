"""C4's line rules: which lines of a document C4 would keep, and what stands in them (Raffel et al. 2020, section 2.2)."""

from enum import IntEnum

import numpy as np

from pipeline.stages.quality.compiled import kernel, part
from pipeline.stages.quality.unicode import BREAK, SPACE, SYMBOL, TERMINAL, decode, last_word_end

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

    A line is kept that ends like a sentence, has 3 words, none of them too long, and no phrase but the first of PHRASES.
    """

    SENTENCES = 0  # of kept lines
    LOREM_IPSUM = 1  # 1 where such a line has the phrase
    CURLY_BRACKET = 2  # 1 where a line without javascript, otherwise such, has one


_COLUMNS = len(C4)
_LOREM_IPSUM, _JAVASCRIPT, _POLICY = 1, 2, 0xFC  # bits of PHRASES
_DOT, _NEWLINE, _RETURN, _CURLY, _OPEN, _CLOSE, _A, _Z, _0, _9 = (ord(character) for character in ".\n\r{[]AZ09")
# Curly quotes end a line for a reader, as straight ones do.
_LINE_ENDS = tuple(ord(character) for character in ".?!\"'\u201d\u2019")
_CLOSERS = tuple(ord(character) for character in "\"')]}\u201d\u2019\u00bb")
_EDIT = np.frombuffer(b"[edit]", np.uint8)
_CITATION_NEEDED = np.frombuffer(b"[citation needed]", np.uint8)


def phrase_tables() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """PHRASES in lower case, as rows of zero-padded bytes, and the bits of the phrases that a first and a second byte may begin, in either case."""
    width = max(len(phrase) for phrase in PHRASES)
    rows = np.frombuffer(b"".join(phrase.encode().ljust(width, b"\0") for phrase in PHRASES), np.uint8).reshape(len(PHRASES), width)
    begins = np.zeros((2, 256), np.uint8)
    for bit, phrase in enumerate(PHRASES):
        for place in range(2):
            for character in (phrase[place], phrase[place].upper()):
                begins[place, ord(character)] |= 1 << bit
    return rows, begins[0], begins[1]


@kernel
def c4(data: np.ndarray, offsets: np.ndarray, classes: np.ndarray, phrases: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """int64[documents, len(C4)], with the tables of `phrase_tables`. Lines are those of str.splitlines(). Time is linear in the text."""
    found = np.zeros((offsets.size - 1, _COLUMNS), np.int64)
    for row in range(offsets.size - 1):
        stop = offsets[row + 1]
        line_start = position = offsets[row]
        while position <= stop:
            width = 1
            is_break = position == stop
            if not is_break:
                byte = data[position]
                if byte < 0x80:
                    is_break = classes[byte] & BREAK != 0
                elif byte == 0xC2 or byte == 0xE2:  # what can begin U+0085, U+2028, U+2029
                    code_point, width = decode(data, position, stop)
                    is_break = classes[code_point] & BREAK != 0
            if is_break:
                _line(data, line_start, position, classes, phrases, first, second, found[row])
                line_start = position + width
            position += width
    return found


@part
def _line(
    data: np.ndarray, start: int, stop: int, classes: np.ndarray, phrases: np.ndarray, first: np.ndarray, second: np.ndarray, found: np.ndarray
) -> None:
    stop = last_word_end(data, start, stop, classes)
    sentences_end = _without_citations(data, start, stop, classes)
    if not _ends_like_a_sentence(data, start, sentences_end):
        return
    words, longest, sentences = _words_and_sentences(data, start, stop, sentences_end, classes)
    if words < MIN_LINE_WORDS or longest > MAX_WORD_LENGTH:
        return
    has_curly, bits = _search(data, start, stop, phrases, first, second)
    if bits & _LOREM_IPSUM:
        found[1] = 1
    if bits & _JAVASCRIPT:
        return
    if has_curly:
        found[2] = 1
    if not bits & _POLICY:
        found[0] += sentences


@part
def _without_citations(data: np.ndarray, start: int, stop: int, classes: np.ndarray) -> int:
    """The end of the line's text before trailing citations such as `[12]`, `[]`, `[edit]`, `[citation needed]`, and white space before them."""
    while stop > start and data[stop - 1] == _CLOSE:
        opening = stop - 2
        while opening > start and _0 <= data[opening] <= _9:
            opening -= 1
        if opening < start or data[opening] != _OPEN:
            if _ends_with(data, start, stop, _EDIT):
                opening = stop - _EDIT.size
            elif _ends_with(data, start, stop, _CITATION_NEEDED):
                opening = stop - _CITATION_NEEDED.size
            else:
                break
        stop = last_word_end(data, start, opening, classes)
    return stop


@part
def _ends_with(data: np.ndarray, start: int, stop: int, ending: np.ndarray) -> bool:
    common = 0
    while common < ending.size and stop - common > start and data[stop - common - 1] == ending[ending.size - common - 1]:
        common += 1
    return common == ending.size


@part
def _ends_like_a_sentence(data: np.ndarray, start: int, stop: int) -> bool:
    if stop == start:
        return False
    if data[stop - 1] < 0x80:
        is_ellipsis = stop - start >= 3 and data[stop - 1] == data[stop - 2] == data[stop - 3] == _DOT
        return data[stop - 1] in _LINE_ENDS and not is_ellipsis
    return stop - start >= 3 and data[stop - 3] >= 0xE0 and decode(data, stop - 3, stop)[0] in _LINE_ENDS


@part
def _words_and_sentences(data: np.ndarray, start: int, stop: int, sentences_end: int, classes: np.ndarray) -> tuple[int, int, int]:
    """Words of the line, characters of the longest, and sentences of the words that begin before `sentences_end`.

    A sentence ends with a word that ends in a terminator of any script (one dot, not more; not an initial such as `J.`), closing quotes, brackets
    and numbered citations aside. The next one begins with the next word of more than symbols.
    """
    words = longest = length = 0
    sentences, ended = 1, False
    ending = 0  # of the word so far: 1 behind a terminator, 2 inside a citation behind one
    symbols_only, initial = True, False
    code_point = 0
    word_start = position = start
    while position <= stop:
        previous = code_point
        if position == stop:
            code_point, width, flags = _NEWLINE, 1, SPACE
        elif data[position] < 0x80:
            code_point, width = int(data[position]), 1
            flags = classes[code_point]
        else:
            code_point, width = decode(data, position, stop)
            flags = classes[code_point]
        if flags & SPACE:
            if length:
                words += 1
                longest = max(longest, length)
                if word_start < sentences_end:
                    if ended and not symbols_only:
                        sentences += 1
                        ended = False
                    ended = ended or (ending == 1 and not (initial and length == 2))
            length = ending = 0
            symbols_only = True
        else:
            if length == 0:
                word_start = position
                initial = _A <= code_point <= _Z
            length += 1
            if not flags & SYMBOL:
                symbols_only = False
                ending = 2 * (ending == 2 and _0 <= code_point <= _9)
            elif code_point == _DOT:
                ending = 0 if previous == _DOT else 1
            elif flags & TERMINAL:
                ending = 1
            elif ending == 1 and code_point == _OPEN:
                ending = 2
            elif ending == 2:
                ending = 1 if code_point == _CLOSE else 0
            elif code_point not in _CLOSERS:
                ending = 0
        position += width
    return words, longest, sentences


@part
def _search(data: np.ndarray, start: int, stop: int, phrases: np.ndarray, first: np.ndarray, second: np.ndarray) -> tuple[bool, int]:
    """Whether the line holds a `{`, and the bits of the phrases that it holds in upper or lower case."""
    has_curly = False
    bits = 0
    for position in range(start, stop - 1):  # a line that ends like a sentence does not end in `{`
        has_curly |= data[position] == _CURLY
        candidates = first[data[position]] & second[data[position + 1]]
        if candidates:
            for bit in range(len(PHRASES)):
                if candidates >> bit & 1 and _holds(data, position, stop, phrases[bit]):
                    bits |= 1 << bit
    return has_curly, bits


@part
def _holds(data: np.ndarray, start: int, stop: int, phrase: np.ndarray) -> bool:
    for i in range(phrase.size):
        if phrase[i] == 0:
            return True
        if start + i >= stop:
            return False
        byte = data[start + i]
        if byte + 32 * (_A <= byte <= _Z) != phrase[i]:
            return False
    return True
