"""Passwords, tokens and keys that stand after `=` or `:` and only their name shows: `DB_PASSWORD=...`,
`"secret_key": "..."`.
"""

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.pii import byte, char
from pipeline.stages.pii.secret_names import (
    LAST_LETTERS,
    MOST_BYTES,
    NOTHING,
    SIGNATURE,
    TOKEN,
    before_copula,
    is_made_up,
    is_of_a_list,
    is_value,
    kind_of_name,
)

_QUOTES = byte.byte_set(b"\"'`")
_AFTER_NAME = byte.byte_set(b" \"'`]\\:\t")
_BEFORE_VALUE = byte.byte_set(b" \t>\\")
_SEPARATES_PARAMETERS = byte.byte_set(b"&?-;")
# Of a value without quotes
_ENDS_VALUE = byte.byte_set(bytes(range(33)) + b"\"'`;,&|<>[](){}")
_AFTER_VALUE = byte.byte_set(b".\\")
_IN_CODE = byte.byte_set(b"([{<")
_STARTS_TEMPLATE = byte.byte_set(b"$<{%[*@&")


@borrowing
def named_secret_at(data: np.ndarray, mark: int, hi: int) -> tuple[int, int]:
    """(start, end) of the secret whose name ends before the "=" or ":" at `mark`, or (0, 0)."""
    name = char.run_start(data, mark, mark - 4, _AFTER_NAME)
    if name > 0 and data[mark] == byte.COLON:
        name = before_copula(data, name)
    if name == 0 or not LAST_LETTERS[data[name - 1] | byte.CASE]:
        return 0, 0
    kind, begins = kind_of_name(data, name)
    if kind == NOTHING or (kind == TOKEN and is_of_a_list(data, begins)):
        return 0, 0
    colon = data[mark] == byte.COLON
    if kind == SIGNATURE and (colon or begins == 0 or not _SEPARATES_PARAMETERS[data[begins - 1]]):
        return 0, 0
    start = char.run_end(data, mark + 1, min(hi, mark + 16), _BEFORE_VALUE)
    quote = data[start] if start < hi and _QUOTES[data[start]] else 0
    start += quote > 0
    if start >= hi or _STARTS_TEMPLATE[data[start]] or data[start] == byte.EQUALS:
        return 0, 0
    if colon and data[start] == byte.SLASH:
        return 0, 0
    end = start
    while end < hi and end - start < MOST_BYTES and data[end] > byte.SPACE:
        if quote and (data[end] == quote or data[end] == byte.BACKSLASH):
            break
        if not quote and _ENDS_VALUE[data[end]] and not (colon and data[end] == byte.AMPERSAND):
            break
        end += 1
    is_closed = end < hi and (data[end] == quote or data[end] == byte.BACKSLASH)
    if end - start == MOST_BYTES or (quote and not is_closed):
        return 0, 0
    if not quote:
        if end < hi and _IN_CODE[data[end]]:
            return 0, 0
        end = char.run_start(data, end, start, _AFTER_VALUE)
        for i in range(start, end):
            if data[i] == byte.DOT and char.word_before(data, i) and char.is_lower(data[i + 1]):
                return 0, 0
    if not is_value(data, start, end, hi, kind, quote > 0, colon):
        return 0, 0
    return (0, 0) if is_made_up(data, start, end) else (start, end)
