"""Cuts text into words as a pre-tokenizer does."""

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.text import decode
from pipeline.stages.tokenizer.characters import BREAK, LETTER, NOT_A_DIGIT, NUMBER, OTHER, WHITE

LLAMA3, GPT2, GPT2_SINGLE_DIGITS = range(3)

UNLIMITED = 1 << 62

APOSTROPHE, SPACE = ord("'"), ord(" ")
LONG_S = b"\xc5\xbf"  # the only other character that is an s or a t when case is ignored
FOLD = ord("a") - ord("A")
E, L, R, V = (ord(letter) for letter in "elrv")
ALONE = np.isin(np.arange(256), list(b"stmd"))  # follow an apostrophe by themselves


@borrowing
def _at(data: np.ndarray, i: int, stop: int, of: np.ndarray) -> tuple[int, int]:
    """Class and bytes of the character at `i`, (0, 0) at the end."""
    if i >= stop:
        return 0, 0
    if data[i] < 0x80:
        return of[data[i]], 1
    point, width = decode(data, i, stop)
    return of[point], width


@borrowing
def _run_end(data: np.ndarray, i: int, stop: int, of: np.ndarray, members: int, most: int) -> int:
    """Where the run of at most `most` characters of the classes `members` that starts at `i` ends."""
    for _ in range(most):
        flag, width = _at(data, i, stop, of)
        if not flag & members:
            break
        i += width
    return i


@borrowing
def _contraction_end(data: np.ndarray, i: int, stop: int, ignore_case: bool) -> int:
    """Where one of 's 't 're 've 'm 'll 'd, with the apostrophe at `i`, ends; `i` if there is none."""
    if i + 1 >= stop:
        return i
    fold = FOLD if ignore_case else 0
    first = data[i + 1] | fold
    if ALONE[first]:
        return i + 2
    if i + 2 >= stop:
        return i
    second = data[i + 2] | fold
    if first == L and second == L:
        return i + 3
    if second == E and (first == R or first == V):  # noqa: SIM109 - a tuple compiles slower
        return i + 3
    if ignore_case and data[i + 1] == LONG_S[0] and data[i + 2] == LONG_S[1]:
        return i + 3
    return i


@borrowing
def _white_end(data: np.ndarray, i: int, stop: int, of: np.ndarray, breaks_end_words: bool) -> int:
    r"""Where `\s*[\r\n]+` (if breaks do), `\s+(?!\S)` or `\s+` ends for the white space at `i`."""
    last = after_break = end = i
    while True:
        flag, width = _at(data, end, stop, of)
        if not flag & WHITE:
            break
        last = end
        end += width
        if flag & BREAK:
            after_break = end
    if breaks_end_words and after_break > i:
        return after_break
    return end if end == stop or last == i else last


@borrowing
def word_end(data: np.ndarray, i: int, stop: int, of: np.ndarray, pattern: int, most_digits: int) -> int:
    """Where the word that starts at `i` ends: the first alternative of the pattern that fits."""
    flag, width = _at(data, i, stop, of)
    if data[i] == APOSTROPHE:
        end = _contraction_end(data, i, stop, pattern == LLAMA3)
        if end > i:
            return end
    following = _at(data, i + width, stop, of)[0]
    led = data[i] == SPACE or (pattern == LLAMA3 and flag & (WHITE | OTHER) and not flag & BREAK)
    if flag & LETTER or (led and following & LETTER):
        return _run_end(data, i + width, stop, of, LETTER, stop)
    if flag & NUMBER:
        return _run_end(data, i, stop, of, NUMBER, most_digits)
    if pattern != LLAMA3 and data[i] == SPACE and following & NUMBER:
        return _run_end(data, i + width, stop, of, NUMBER, most_digits)
    if flag & OTHER or (data[i] == SPACE and following & OTHER):
        end = _run_end(data, i + width, stop, of, OTHER, stop)
        return _run_end(data, end, stop, of, BREAK, stop) if pattern == LLAMA3 else end
    return _white_end(data, i, stop, of, pattern == LLAMA3)


@borrowing
def piece_end(data: np.ndarray, i: int, stop: int, of: np.ndarray, pattern: int) -> int:
    """Where the text that is cut into words by itself ends: each digit is, and what stands between digits."""
    if pattern != GPT2_SINGLE_DIGITS:
        return stop
    end = _run_end(data, i, stop, of, NOT_A_DIGIT, stop)
    return end if end > i else i + _at(data, i, stop, of)[1]
