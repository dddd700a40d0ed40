"""Words near a number that say what it is. Seven digits or an unbroken run are personal only near such a
word.

The search stops at a digit, at "@" and at a square bracket, because a word before another value describes
that value.
"""

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.pii import byte, char

_KEY_BYTES = 7
_LONGEST_WORD = 48  # bytes
TOUCHING = 20  # bytes of the letters that touch a number, at most
_FIRST_OF_SEVERAL = 0xC0  # the least byte that begins a letter of several
ENDS_SEARCH = byte.byte_set(b"0123456789@[]")
_ENDS_SEARCH_AFTER = byte.byte_set(b"0123456789@\n[]")
_BEFORE_LABEL = byte.byte_set(b" -(")
_BEFORE_VERSION = byte.byte_set(b" =:\"',.(#")


def keys(words: str) -> np.ndarray:
    """One integer for each lower-case word: its first 7 bytes, big-endian, without those that begin a letter
    of several. These only say which script it is, so that 7 letters of Greek count, not 3.

    `key` lowers letters of ASCII only, so words with others have one key for each way to write them.
    """
    ways = {way for word in words.split() for way in (word, word.title(), word.upper())}
    written = set()
    for way in ways:
        told = [c | byte.CASE if c < 0x80 else c for c in way.encode() if c < _FIRST_OF_SEVERAL]
        written.add(int.from_bytes(bytes(told[:_KEY_BYTES]), "big"))
    return np.array(sorted(written), dtype=np.int64)


PHONE_LABELS_AFTER = keys("office fax mobile cell phone tel telephone desk home work voice landline")
SSN_WORDS = keys("ssn ssns ssan socialsecurity")
SSN_LABELS = keys("social soc ss")
NUMBERED = keys("part parts sku model serial isbn order orders invoice catalog catalogue lot pn patent")
BESIDE_SSN_LABELS = keys("security sec insurance number no num nr is was my id card")
CARD_WORDS = keys(
    "card cards cc ccn credit debit visa mastercard amex maestro discover diners jcb unionpay pan cvv cvc "
    "pay paid payment payments bill billing charge charged charges declined expires expiry kreditkarte karte "
    "carte tarjeta cartão carta karta kort"
)
IP_WORDS = keys(
    "ip ips ipv4 src dst saddr daddr address addresses addr dns nameserver resolver host hosts hostname "
    "server servers gateway router proxy subnet netmask ping pinged pinging traceroute ssh telnet curl "
    "connect connected connection blocked banned"
)
SEEDS = keys("seed seeds random rng state")
VERSION_WORDS = keys(
    "version versions ver vers release releases released firmware driver build rev revision section sections "
    "sec chapter table figure fig appendix clause paragraph oid oids patch update article annex item rule "
    "step kernel linux"
)
_CONNECTIVES = keys("and or to through from than before after until is of number no nr")


@borrowing
def word_start(data: np.ndarray, end: int) -> int:
    """Where the word begins that ends at `end`; `end` if none does."""
    return char.run_start(data, end, end - _LONGEST_WORD, char.LETTERS)


@borrowing
def key(data: np.ndarray, start: int, end: int) -> int:
    """The key, as `keys` makes it, of the word `data[start:end]` in any case."""
    made, told = 0, 0
    for i in range(start, end):
        c = data[i]
        if c >= _FIRST_OF_SEVERAL:
            continue
        made = made * 256 + (c | byte.CASE if c < 0x80 else c)
        told += 1
        if told == _KEY_BYTES:
            break
    return made


@borrowing
def is_among(numbers: np.ndarray, number: int) -> bool:
    """Whether `number` is one of the sorted `numbers`."""
    low, high = 0, len(numbers)
    while low < high:
        middle = (low + high) // 2
        if numbers[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low < len(numbers) and numbers[low] == number


@borrowing
def is_one_of(data: np.ndarray, start: int, end: int, words: np.ndarray) -> bool:
    """Whether `data[start:end]` is one of `words`, in any case."""
    return is_among(words, key(data, start, end))


@borrowing
def word_near_before(data: np.ndarray, i: int, words: np.ndarray, reach: int) -> bool:
    """Whether one of `words` ends in the `reach` bytes before `i`, on the same line or the one above."""
    floor = max(0, i - reach)
    lines = 0
    while i > floor:
        c = data[i - 1]
        if char.is_letter(c):
            end, i = i, char.run_start(data, i, floor, char.LETTERS)
            cut = i == floor and i > 0 and char.is_letter(data[i - 1])
            if not cut and is_one_of(data, i, end, words):
                return True
            continue
        if c == byte.NEWLINE:
            lines += 1
        if lines > 1 or ENDS_SEARCH[c]:
            return False
        i -= 1
    return False


@borrowing
def word_near_after(data: np.ndarray, i: int, hi: int, words: np.ndarray, reach: int) -> bool:
    """Whether one of `words` begins in the `reach` bytes from `i`, before the end of the line or sentence and
    before another value.
    """
    stop = min(hi, i + reach)
    while i < stop:
        c = data[i]
        if char.is_letter(c):
            start, i = i, char.run_end(data, i, min(hi, i + reach + 1), char.LETTERS)
            if is_one_of(data, start, i, words):
                return True
            continue
        sentence_ends = c == byte.DOT and i + 1 < hi and data[i + 1] == byte.SPACE
        if sentence_ends or _ENDS_SEARCH_AFTER[c]:
            return False
        i += 1
    return False


@borrowing
def touching_word(data: np.ndarray, p: int) -> int:
    """The key of the letters that touch `p`: of "SSN" for "SSN123-45-6789". 0 if there are none."""
    return key(data, char.run_start(data, p, p - TOUCHING, char.LETTERS), p)


@borrowing
def named_before(data: np.ndarray, i: int, words: np.ndarray, beside: np.ndarray, reach: int) -> bool:
    """Whether one of `words` ends in the `reach` bytes before `i`, on the same line, with nothing but marks
    and the words `beside` in between.
    """
    floor = max(0, i - reach)
    while i > floor:
        c = data[i - 1]
        if char.is_letter(c):
            end, i = i, char.run_start(data, i, floor, char.LETTERS)
            word = key(data, i, end)
            if is_among(words, word):
                # "\\item" of LaTeX names nothing
                return i == 0 or not (char.is_letter(data[i - 1]) or data[i - 1] == byte.BACKSLASH)
            if not is_among(beside, word):
                return False
            continue
        if c == byte.NEWLINE or ENDS_SEARCH[c]:
            return False
        i -= 1
    return False


@borrowing
def label_after(data: np.ndarray, i: int, hi: int) -> bool:
    """Whether a word such as "office" or "fax" follows directly: "555 1234 (fax)", "555 1234-Office"."""
    start = char.run_end(data, i, min(hi, i + 3), _BEFORE_LABEL)
    end = char.run_end(data, start, min(hi, start + 12), char.LETTERS)
    return end > start > i and is_one_of(data, start, end, PHONE_LABELS_AFTER)


@borrowing
def names_a_version(data: np.ndarray, i: int) -> bool:
    """Whether words before the dotted number at `i` call it a version or a section.

    "version 1.2.3.4", "sections 1.2.3.4 and 1.2.3.5".
    """
    floor = max(0, i - 64)
    while i > floor:
        c = data[i - 1]
        if _BEFORE_VERSION[c]:
            i -= 1
        elif char.is_digit(c):
            run = dots = 0
            while i > floor and (char.is_digit(data[i - 1]) or data[i - 1] == byte.DOT):
                i -= 1
                run = run + 1 if data[i] != byte.DOT else 0
                dots += data[i] == byte.DOT
                if run > 3 or dots > 3:
                    return False
        elif char.ASCII_LETTERS[c]:
            end, i = i, char.run_start(data, i, floor, char.ASCII_LETTERS)
            if i > 0 and data[i - 1] == byte.BACKSLASH:  # "\\item" of LaTeX
                return False
            named = end - i > 7 and is_one_of(data, end - 7, end, VERSION_WORDS)  # "AssemblyVersion"
            if named or is_one_of(data, i, end, VERSION_WORDS):
                return True
            if not is_one_of(data, i, end, _CONNECTIVES):
                return False
        elif c == 0xA7:  # the second byte of "§"
            return i - 2 >= 0 and data[i - 2] == 0xC2
        else:
            return False
    return False
