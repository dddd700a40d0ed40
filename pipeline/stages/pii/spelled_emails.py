"""E-mail addresses that are written so that programs do not see them.

Three forms are found:

- The "@" is a word in brackets: `jo (at) doe.org`, `jo[at]doe[dot]org`, `jo(a)doe.de`.
- The "@" is a word or stands between spaces, and something says that an address follows: `<jo at doe.org>`,
  `From: jo at doe.org (Jo Doe)`.
- Several names share a domain: `{ann, jo}@doe.org`.

Without brackets, `<` or a label, "at" mostly names a place ("released at audible.com"). Such a text is left
as it is.
"""

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.pii import byte, char
from pipeline.stages.pii.context import is_one_of, keys, word_start
from pipeline.stages.pii.emails import MAX_LOCAL, NOT_DOTS, USUAL_ENDINGS, domain_end, is_tld, local_start

_AT_WORDS = keys("at ät")
_BRACKETED_AT = keys("at ät a")
_DOT_WORDS = keys("dot punkt")
_LABELS = keys("email emails mail mails from to cc author authors contact maintainer courriel correo correio")
_LONGEST_WORD = 5  # bytes
_MOST_SPACES = 2
_LONGEST_GROUP = 160  # bytes of the names that share a domain
_SHORTEST_GROUP = 3
_LONGEST_BRACKET = 8  # bytes, around a dot
_CLOSING = np.zeros(256, np.uint8)
_CLOSING[list(b"([{<")] = list(b")]}>")
_PARTS_NAMES = byte.byte_set(b" ,|;")
_IN_GROUP = char.IN_LOCAL | char.LETTERS | _PARTS_NAMES


@borrowing
def _after_spaces(data: np.ndarray, i: int, hi: int) -> int:
    return char.run_end(data, i, min(hi, i + _MOST_SPACES), char.SPACES)


@borrowing
def _sign_end(data: np.ndarray, i: int, hi: int, words: np.ndarray, sign: int) -> int:
    """Where one of `words` or the `sign` at `i` ends; `i` if there is none."""
    if i < hi and data[i] == sign:
        return i + 1
    end = char.run_end(data, i, min(hi, i + _LONGEST_WORD + 1), char.LETTERS)
    return end if is_one_of(data, i, end, words) else i


@borrowing
def _bracketed_end(data: np.ndarray, i: int, hi: int, words: np.ndarray, sign: int) -> int:
    """Where the bracket closes that opens at `i` around one of `words` or the `sign`."""
    closing = _CLOSING[data[i]] if i < hi else 0
    if closing == 0:
        return 0
    start = _after_spaces(data, i + 1, hi)
    end = _sign_end(data, start, hi, words, sign)
    if end == start:
        return 0
    end = _after_spaces(data, end, hi)
    return end + 1 if end < hi and data[end] == closing else 0


@borrowing
def _spaced_end(data: np.ndarray, i: int, hi: int, words: np.ndarray, sign: int) -> int:
    """Where the spaces end behind one of `words` or the `sign`, before which spaces stand at `i`."""
    start = _after_spaces(data, i, hi)
    end = _sign_end(data, start, hi, words, sign)
    after = _after_spaces(data, end, hi)
    return after if i < start < end < after else 0


@borrowing
def _after_dot(data: np.ndarray, i: int, hi: int, may_be_spaced: bool) -> int:
    """Where a name goes on behind the spelled dot at `i`; 0 if there is none."""
    end = _bracketed_end(data, _after_spaces(data, i, hi), hi, _DOT_WORDS, byte.DOT)
    if end > 0:
        return _after_spaces(data, end, hi)
    return _spaced_end(data, i, hi, _DOT_WORDS, byte.DOT) if may_be_spaced else 0


@borrowing
def _spaces_before(data: np.ndarray, i: int) -> int:
    """Where the spaces before `i` begin."""
    return char.run_start(data, i, i - _MOST_SPACES, char.SPACES)


@borrowing
def _name_start(data: np.ndarray, end: int) -> int:
    """Where the local part before `end` begins, whose dots may be words in brackets; `end` if there is
    none.
    """
    start = local_start(data, end)
    while start < end:
        closing = _spaces_before(data, start) - 1
        opening = closing - 1
        while opening > 0 and closing - opening < _LONGEST_BRACKET and _CLOSING[data[opening]] == 0:
            opening -= 1
        if opening < 1 or _bracketed_end(data, opening, end, _DOT_WORDS, byte.DOT) != closing + 1:
            break
        before = _spaces_before(data, opening)
        first = local_start(data, before)
        if first == before or end - first > MAX_LOCAL:
            break
        start = first
    return start


@borrowing
def _is_usual(data: np.ndarray, start: int, end: int) -> bool:
    """Whether a domain of a country, or another usual one, can end in `start:end`."""
    return is_tld(data, start, end) and (end - start == 2 or is_one_of(data, start, end, USUAL_ENDINGS))


@borrowing
def _spelled_domain_end(data: np.ndarray, p: int, hi: int) -> int:
    """Where the domain at `p` ends, some dots of which may be words: `doe [dot] co [dot] uk`, `doe dot org`.
    0 if there is none with a usual last label.
    """
    end = max(domain_end(data, p - 1, hi), char.run_end(data, p, hi, char.IN_LABEL))
    label = char.run_start(data, end, p, NOT_DOTS)
    good = end if label > p and _is_usual(data, label, end) else 0
    while end > p:
        label = _after_dot(data, end, hi, good == 0)
        if label == 0:
            break
        end = char.run_end(data, label, hi, char.IN_LABEL)
        if _is_usual(data, label, end):
            good = end
        elif end == label:
            break
    return good


@borrowing
def _of_name_and_domain(data: np.ndarray, name_end: int, domain: int, hi: int) -> tuple[int, int]:
    """(start, end) of the address whose name ends at `name_end` and whose domain begins at `domain`."""
    start = _name_start(data, name_end)
    end = _spelled_domain_end(data, domain, hi) if start < name_end else 0
    return (start, end) if end > 0 else (0, 0)


@borrowing
def announced_email_at(data: np.ndarray, i: int, hi: int) -> tuple[int, int]:
    """(start, end) of the address with a spelled "@" behind the "<", or the label with ":", at `i`."""
    is_label = data[i] == byte.COLON
    start = _after_spaces(data, i + 1, hi) if is_label else i + 1
    if not char.word_at(data, start, hi):
        return 0, 0
    name_end, part = 0, start
    while part > 0:
        name_end = char.run_end(data, part, min(hi, start + MAX_LOCAL + 1), char.IN_LOCAL)
        part = _after_dot(data, name_end, hi, True) if part < name_end else 0
    domain = _spaced_end(data, name_end, hi, _AT_WORDS, byte.AT)
    if domain == 0 or name_end - start > MAX_LOCAL:
        return 0, 0
    if is_label and not is_one_of(data, word_start(data, i), i, _LABELS):
        return 0, 0
    end = _spelled_domain_end(data, domain, hi)
    closes = is_label or (end < hi and data[end] == byte.GREATER)
    return (start, end) if end > 0 and closes else (0, 0)


@borrowing
def _email_around_dot(data: np.ndarray, i: int, hi: int) -> tuple[int, int]:
    """(start, end) of the address with "at" between spaces whose first dot is in the bracket that opens at
    `i`: `jo at doe (dot) org`. (0, 0) if there is none.
    """
    if _bracketed_end(data, i, hi, _DOT_WORDS, byte.DOT) == 0:
        return 0, 0
    end = _spaces_before(data, i)
    domain = char.run_start(data, end, end - MAX_LOCAL, char.IN_LABEL)
    word = word_start(data, _spaces_before(data, domain))
    name_end = _spaces_before(data, word)
    if domain == end or name_end == word or _spaced_end(data, name_end, hi, _AT_WORDS, byte.AT) != domain:
        return 0, 0
    return _of_name_and_domain(data, name_end, domain, hi)


@borrowing
def bracketed_email_at(data: np.ndarray, i: int, hi: int) -> tuple[int, int]:
    """(start, end) of the address with a spelled sign in the bracket that opens at `i`, or which is in that
    bracket; (0, 0) if there is none.
    """
    after = _bracketed_end(data, i, hi, _BRACKETED_AT, byte.AT)
    if after == 0:
        start, end = announced_email_at(data, i, hi) if data[i] == byte.LESS else (0, 0)
        return (start, end) if end > 0 else _email_around_dot(data, i, hi)
    name_end, domain = _spaces_before(data, i), _after_spaces(data, after, hi)
    # "(a)" with spaces beside it numbers a paragraph.
    if after - i == 3 and data[i + 1] != byte.AT and (name_end < i or domain > after):
        return 0, 0
    return _of_name_and_domain(data, name_end, domain, hi)


@borrowing
def shared_email_at(data: np.ndarray, at: int, hi: int) -> tuple[int, int]:
    """(start, end) of the addresses in braces before the "@" at `at` and of their domain, or (0, 0). A single
    name in braces is a template.
    """
    if at < _SHORTEST_GROUP or data[at - 1] != byte.CLOSING_CURLY:
        return 0, 0
    start, parted = at - 1 - (data[at - 2] == byte.BACKSLASH), False  # LaTeX's "\}"
    while start > 0 and at - start < _LONGEST_GROUP and _IN_GROUP[data[start - 1]]:
        start -= 1
        parted = parted or _PARTS_NAMES[data[start]]
    start -= 1
    if start < 0 or data[start] != byte.OPENING_CURLY or not parted:
        return 0, 0
    end = domain_end(data, at, hi)
    return (start - (start > 0 and data[start - 1] == byte.BACKSLASH), end) if end > 0 else (0, 0)
