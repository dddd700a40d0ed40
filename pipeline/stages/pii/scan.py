"""One pass over the bytes of a batch: rare bytes trigger the matchers, all others are skipped."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pipeline.stages.compiled import inlined, kernel
from pipeline.stages.pii import byte
from pipeline.stages.pii.cards import card_end
from pipeline.stages.pii.characters import digit_run, is_alnum, is_digit
from pipeline.stages.pii.credentials import TRIGGERS, secret_at, url_credentials_at
from pipeline.stages.pii.emails import email_at
from pipeline.stages.pii.ibans import iban_at
from pipeline.stages.pii.ip_addresses import ipv4_end, ipv6_at
from pipeline.stages.pii.kinds import (
    CREDIT_CARD,
    DOCUMENT,
    EMAIL,
    END,
    IBAN,
    IPV4,
    IPV6,
    PATTERN,
    PHONE,
    SECRET,
    SSN,
    START,
)
from pipeline.stages.pii.phones import phone_end
from pipeline.stages.pii.ssns import ssn_end

_SKIP, _ON_DIGIT, _ON_AT, _ON_COLON, _ON_OPENING, _ON_SECRET = range(6)
_PHONE_LIST_GAP = 8  # most bytes between two numbers of a list
_SHORTEST = 6  # bytes of the shortest match: a@b.co


def _actions() -> np.ndarray:
    actions = np.zeros(256, np.uint8)
    for characters, action in (
        (b"0123456789", _ON_DIGIT),
        (b"@", _ON_AT),
        (b":", _ON_COLON),
        (b"+(", _ON_OPENING),
        (TRIGGERS, _ON_SECRET),
    ):
        actions[list(characters)] = action
    return actions


_ACTIONS = _actions()


@inlined
def _number(
    data: np.ndarray, p: int, digits: int, lo: int, hi: int, wanted: np.ndarray, after_phone: bool
) -> tuple[int, int, int]:
    """(start, end, pattern) of the value that the `digits` digits at `p` belong to; end is 0 if none."""
    if p > lo and is_alnum(data[p - 1]):
        if wanted[IBAN] and digits >= 2:
            start, end = iban_at(data, p, lo, hi)
            return start, end, IBAN
        return 0, 0, 0
    if wanted[IPV4] and digits <= 3 and p + digits < hi and data[p + digits] == byte.DOT:
        end = ipv4_end(data, p, lo, hi)
        if end > 0:
            return p, end, IPV4
    if wanted[CREDIT_CARD] and (digits == 4 or 12 <= digits <= 19):
        end = card_end(data, p, digits, lo, hi)
        if end > 0:
            return p, end, CREDIT_CARD
    if wanted[SSN] and (digits == 3 or digits == 9):
        end = ssn_end(data, p, digits, lo, hi)
        if end > 0:
            return p, end, SSN
    if wanted[PHONE] and digits <= 17:
        return p, phone_end(data, p, lo, hi, after_phone), PHONE
    return 0, 0, 0


@inlined
def _match(
    data: np.ndarray, i: int, lo: int, hi: int, wanted: np.ndarray, after_phone: bool
) -> tuple[int, int, int]:
    """(start, end, pattern) of the value that the non-digit trigger at `i` belongs to; end is 0 if none."""
    action = _ACTIONS[data[i]]
    if action == _ON_SECRET:
        if wanted[SECRET]:
            start, end = secret_at(data, i, lo, hi)
            return start, end, SECRET
    elif action == _ON_AT:
        if wanted[EMAIL]:
            start, end = email_at(data, i, lo, hi)
            return start, end, EMAIL
    elif action == _ON_COLON:
        if wanted[SECRET]:
            start, end = url_credentials_at(data, i, lo, hi)
            if end > 0:
                return start, end, SECRET
        if wanted[IPV6]:
            start, end = ipv6_at(data, i, lo, hi)
            return start, end, IPV6
    elif wanted[PHONE] and i + 7 < hi and (is_digit(data[i + 1]) or data[i + 1] == byte.PLUS):
        return i, phone_end(data, i, lo, hi, after_phone), PHONE
    return 0, 0, 0


@inlined
def _scan_region(
    data: np.ndarray, region: np.ndarray, lo: int, hi: int, wanted: np.ndarray, spans: np.ndarray, count: int
) -> int:
    """Writes the spans whose trigger is in `region` (document, start, end) to `spans` from row `count`.

    Returns the row after the last.
    """
    document, i, stop = region
    while i < stop:
        action = _ACTIONS[data[i]]
        if action == _SKIP:
            i += 1
            continue
        follows = count > 0 and spans[count - 1, DOCUMENT] == document
        previous, gap = spans[count - 1, PATTERN], i - spans[count - 1, END]
        after_phone = follows and previous == PHONE and gap <= _PHONE_LIST_GAP
        step = 1
        if action == _ON_DIGIT:
            step = digit_run(data, i, hi)
            start, end, pattern = _number(data, i, step, lo, hi, wanted, after_phone)
        else:
            start, end, pattern = _match(data, i, lo, hi, wanted, after_phone)
        if end == 0:
            i += step
            continue
        if pattern == EMAIL and follows and previous == SECRET and gap == 0:
            i += 1  # the host after "user:password@"
            continue
        while count > 0 and spans[count - 1, DOCUMENT] == document and spans[count - 1, END] > start:
            count -= 1
            start = min(start, spans[count, START])
        spans[count, DOCUMENT], spans[count, PATTERN] = document, pattern
        spans[count, START], spans[count, END] = start, end
        count += 1
        i = end
    return count


def _compiled(sources: str) -> Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
    """The compiled pass. `sources` is in its closure because numba's cache keys a function by its own file
    and closure, not by the functions that it calls.
    """

    @kernel
    def find(data: np.ndarray, offsets: np.ndarray, regions: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """Rows of (document, pattern, start, end) for triggers in `regions` (document, start, end).

        Ordered and disjoint, in bytes of `data`.
        """
        len(sources)
        spans = np.empty((1024, 4), np.int64)
        count = 0
        for region in regions:
            most = count + (region[2] - region[1]) // _SHORTEST + 1
            if most > len(spans):
                grown = np.empty((2 * most, 4), np.int64)
                for k in range(count):
                    for column in range(4):
                        grown[k, column] = spans[k, column]
                spans = grown
            count = _scan_region(
                data, region, offsets[region[0]], offsets[region[0] + 1], wanted, spans, count
            )
        return spans[:count].copy()

    return find


def _sources() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


find_spans = _compiled(_sources())
