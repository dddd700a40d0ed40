"""Secrets: credentials inside a URL, a connection string or an Authorization header, keys and tokens with
their issuer's prefix or name, JSON web tokens, private keys in PEM and PuTTY's, passwords of Wi-Fi codes.

Only shapes that identify themselves count: a bare run of base64 is not reported. Of a URL the user and the
password go and the host stays. Templates (`$USER:$PASSWORD`, `{user}:{password}`) and what stands for a
password in manuals (`scott:tiger`, `user:pass`, `test:test`) stay.
"""

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.pii import byte, char
from pipeline.stages.pii.context import is_letter, is_one_of, keys
from pipeline.stages.pii.secret_names import PASSWORDS_OF_MANUALS
from pipeline.stages.pii.tokens import is_joined, is_random, token_at
from pipeline.stages.text import equals

_USERINFO_REACH = 256
_JWT_PART = 8
_PEM_BODY = 64

_HEADER, _BEGIN, _END, _PRIVATE, _DASHES, _BEFORE_Z, _AFTER_Z, _DATA_CENTER, _LINES, _MAC, _WIFI = (
    np.frombuffer(text, dtype=np.uint8).copy()
    for text in (
        *(b"eyJ", b"-----BEGIN ", b"-----END ", b"PRIVATE KEY", b"-----"),
        *(b"uthori", b"ation", b"us", b"Private-Lines", b"Private-MAC: ", b"WIFI:"),
    )
)
_IN_CREDENTIALS = char.IN_TOKEN | char.IN_BASE64 | byte.byte_set(b".~")
_FEWEST_OF_CREDENTIALS = 16
_SCHEMES = keys("bearer basic token apikey ssws")
_DISCORD = keys("M N O")
_AUTH, _PASSWORD = keys("auth _auth"), keys("password pwd")
_QUOTES = byte.byte_set(b"\"'")
_HEX_KEY = 32  # hexadecimal digits
_TELEGRAM, _ASANA = 35, 16  # characters after the colon; digits before it
_FEWEST_OF_PASSWORD = 6
_WIFI_REACH = 160
_TEMPLATES = byte.byte_set(b"$*{<%[")
_IN_PEM = char.IN_BASE64 | byte.byte_set(bytes(range(33)) + b"\\:,.()")


@borrowing
def _run(data: np.ndarray, i: int, hi: int, flag: int) -> int:
    """Where the characters of a class from `i` on end."""
    while i < hi and char.FLAGS[data[i]] & flag:
        i += 1
    return i


@borrowing
def _token_run(data: np.ndarray, i: int, hi: int) -> int:
    return _run(data, i, hi, char.TOKEN)


@borrowing
def _jwt_at(data: np.ndarray, i: int, hi: int) -> tuple[int, int]:
    """(start, end) of the JSON web token (RFC 7519) whose "eyJ" ends at `i`, or (0, 0).

    It has three parts, or two that both start with "eyJ". After a dot it is a part of another token.
    """
    start = i - 2
    if start < 0 or not equals(data, start, i, _HEADER[:2]):
        return 0, 0
    if char.word_before(data, start) or (
        start > 0
        and (
            data[start - 1] == byte.HYPHEN
            or (data[start - 1] == byte.DOT and char.word_before(data, start - 1))
        )
    ):
        return 0, 0
    header = _token_run(data, i, hi)
    if header - start < _JWT_PART or header + 3 >= hi or data[header] != byte.DOT:
        return 0, 0
    payload = _token_run(data, header + 1, hi)
    if payload - header <= _JWT_PART:
        return 0, 0
    if payload < hi and data[payload] == byte.DOT:
        signature = _token_run(data, payload + 1, hi)
        if signature - payload > _JWT_PART:
            return (start, signature) if not char.word_at(data, signature, hi) else (0, 0)
    unsigned = equals(data, header + 1, hi, _HEADER)
    return (start, payload) if unsigned and not char.word_at(data, payload, hi) else (0, 0)


@borrowing
def _label_end(data: np.ndarray, i: int, hi: int) -> int:
    """Where the "-----" after the label at `i` ends (RFC 7468: upper-case words), or 0."""
    j = i
    while j < hi and j - i < 40 and (data[j] == byte.SPACE or char.is_upper(data[j])):
        j += 1
    return j + 5 if equals(data, j, hi, _DASHES) else 0


@borrowing
def _private_key_at(data: np.ndarray, i: int, hi: int) -> tuple[int, int]:
    """(start, end) of the PEM block whose "BEGIN" starts at `i`, or (0, 0).

    Stops at the next "--", so repeated openings cost linear time.
    """
    start = i - 5
    if start < 0 or not equals(data, start, hi, _BEGIN):
        return 0, 0
    body = _label_end(data, i + 6, hi)
    private = False
    for j in range(i + 6, body - 5):
        private = private or equals(data, j, body, _PRIVATE)
    if not private:
        return 0, 0
    end = body
    while end < hi:
        dash = data[end] == byte.HYPHEN and not (end + 1 < hi and data[end + 1] == byte.HYPHEN)
        if not (_IN_PEM[data[end]] or dash):
            break
        end += 1
    if equals(data, end, hi, _END):
        closed = _label_end(data, end + 9, hi)
        if closed > 0:
            return start, closed
    while end > body and not char.FLAGS[data[end - 1]] & char.BASE64:
        end -= 1
    return (start, end) if end - body >= _PEM_BODY else (0, 0)


@borrowing
def _authorization_at(data: np.ndarray, i: int, hi: int) -> tuple[int, int]:
    """(start, end) of what follows "Authorization: Bearer", Basic or Token, whose "z" is at `i`."""
    if not (equals(data, i - 6, hi, _BEFORE_Z) and equals(data, i + 1, hi, _AFTER_Z)):
        return 0, 0
    scheme = i + 6
    while scheme < hi and scheme - i < 16 and char.ASSIGNS[data[scheme]]:
        scheme += 1
    start = scheme
    while start < hi and start - scheme < 8 and char.is_alnum(data[start]):
        start += 1
    if not is_one_of(data, scheme, start, _SCHEMES) or start >= hi or data[start] != byte.SPACE:
        return 0, 0
    start += 1
    end, digits = start, 0
    while end < hi and _IN_CREDENTIALS[data[end]]:
        digits += char.is_digit(data[end]) or data[end] == byte.EQUALS
        end += 1
    return (start, end) if digits > 0 and end - start >= _FEWEST_OF_CREDENTIALS else (0, 0)


@borrowing
def _discord_at(data: np.ndarray, dot: int, hi: int) -> tuple[int, int]:
    """(start, end) of the token of a bot whose first dot is at `dot`, or (0, 0): an id in base64, six
    characters and at least 27.
    """
    if dot + 34 >= hi or data[dot + 7] != byte.DOT:
        return 0, 0
    start = dot
    while start > 0 and dot - start < 30 and char.FLAGS[data[start - 1]] & char.TOKEN:
        start -= 1
    end = _token_run(data, dot + 8, min(hi, dot + 60))
    if (
        not 23 <= dot - start <= 28
        or not is_one_of(data, start, start + 1, _DISCORD)
        or not char.is_upper(data[start])
    ):
        return 0, 0
    return (start, end) if end - dot >= 35 and _token_run(data, dot + 1, dot + 7) == dot + 7 else (0, 0)


@borrowing
def _mailchimp_at(data: np.ndarray, hyphen: int, hi: int) -> tuple[int, int]:
    """(start, end) of Mailchimp's key, 32 hexadecimal digits and "-us12", whose hyphen is at `hyphen`."""
    start, end = hyphen - _HEX_KEY, hyphen + 3
    if start < 0 or end >= hi or not equals(data, hyphen + 1, hi, _DATA_CENTER):
        return 0, 0
    while end < hi and end - hyphen < 6 and char.is_digit(data[end]):
        end += 1
    whole = _run(data, start, hyphen, char.HEX) == hyphen and 4 <= end - hyphen <= 5
    return (
        (start, end) if whole and not is_joined(data, start) and not char.word_at(data, end, hi) else (0, 0)
    )


@borrowing
def _asana_at(data: np.ndarray, start: int, colon: int, hi: int) -> tuple[int, int]:
    """(start, end) of a personal token of Asana, `1/`, the 16 digits at `start`, a colon and 32 hexadecimal
    digits, or (0, 0).
    """
    if start < 2 or data[start - 1] != byte.SLASH or not char.is_digit(data[start - 2]):
        return 0, 0
    end = _run(data, colon + 1, min(hi, colon + _HEX_KEY + 2), char.HEX)
    whole = end - colon == _HEX_KEY + 1 and not is_joined(data, start - 2)
    return (start - 2, end) if whole else (0, 0)


@borrowing
def secret_at(data: np.ndarray, i: int, hi: int) -> tuple[int, int]:
    """(start, end) of the key or token that the trigger byte at `i` belongs to, or (0, 0)."""
    start, end = 0, 0
    if data[i] == byte.UPPER_J:
        return _jwt_at(data, i, hi)
    if data[i] == byte.UPPER_B:
        start, end = _private_key_at(data, i, hi)
    elif data[i] == byte.Z:
        start, end = _authorization_at(data, i, hi)
    elif data[i] == byte.DOT:
        start, end = _discord_at(data, i, hi)
    elif data[i] == byte.HYPHEN:
        start, end = _mailchimp_at(data, i, hi)
    return (start, end) if end > 0 else token_at(data, i, hi)


@borrowing
def secret_at_equals(data: np.ndarray, equal: int, hi: int) -> tuple[int, int]:
    """(start, end) of the password of a connection string, `Server=x;Password=y;`, with "=" at `equal`."""
    if equal == 0 or data[equal - 1] | byte.CASE != byte.D:
        return 0, 0
    name = equal
    while name > 0 and equal - name < 10 and is_letter(data[name - 1]):
        name -= 1
    if not is_one_of(data, name, equal, _PASSWORD):
        return 0, 0
    end = equal + 1
    while (
        end < hi
        and end - equal < 128
        and data[end] > byte.SPACE
        and data[end] != byte.SEMICOLON
        and not _QUOTES[data[end]]
    ):
        end += 1
    before = name
    while before > 0 and data[before - 1] == byte.SPACE:
        before -= 1
    in_string = (before > 0 and data[before - 1] == byte.SEMICOLON) or (
        end < hi and data[end] == byte.SEMICOLON
    )
    first = data[equal + 1] if equal + 1 < hi else byte.SPACE
    template = first in (
        byte.DOLLAR,
        byte.ASTERISK,
        byte.OPENING_CURLY,
        byte.LESS,
        byte.PERCENT,
        byte.OPENING_SQUARE,
    )
    if not in_string or template or end - equal <= _FEWEST_OF_PASSWORD:
        return 0, 0
    return (0, 0) if is_one_of(data, equal + 1, end, PASSWORDS_OF_MANUALS) else (equal + 1, end)


@borrowing
def _putty_key_at(data: np.ndarray, colon: int, hi: int) -> tuple[int, int]:
    """(start, end) of the private lines of PuTTY's key, with "Private-Lines" before the colon, or (0, 0)."""
    if colon < len(_LINES) or not equals(data, colon - len(_LINES), colon, _LINES):
        return 0, 0
    start = colon + 1
    while start < hi and start - colon < 8 and (data[start] <= byte.SPACE or char.is_digit(data[start])):
        start += 1
    end = start
    while end < hi and (char.IN_BASE64[data[end]] or data[end] == byte.NEWLINE or data[end] == byte.RETURN):
        end += 1
    # the lines end where "Private-MAC" begins, whose letters are base64, too
    mac = end - (len(_MAC) - len(b"-MAC: "))
    if mac > start and equals(data, mac, hi, _MAC):
        return start, _run(data, mac + len(_MAC), hi, char.HEX)
    return (start, end) if end - start >= _PEM_BODY else (0, 0)


@borrowing
def _wifi_password_at(data: np.ndarray, colon: int, hi: int) -> tuple[int, int]:
    """(start, end) of the password of a QR code, `WIFI:S:name;T:WPA;P:password;;`, whose "P" is before the
    colon, or (0, 0).
    """
    if colon < 6 or not (data[colon - 2] == byte.SEMICOLON or data[colon - 2] == byte.COLON):
        return 0, 0
    begins = colon - 6
    floor = max(0, colon - _WIFI_REACH)
    while begins > floor and data[begins] >= byte.SPACE and not equals(data, begins, colon, _WIFI):
        begins -= 1
    end = colon + 1
    while end < hi and end - colon < 128 and data[end] >= byte.SPACE and data[end] != byte.SEMICOLON:
        end += 1 + (data[end] == byte.BACKSLASH)
    whole = end < hi and data[end] == byte.SEMICOLON and equals(data, begins, colon, _WIFI)
    return (colon + 1, end) if whole and end > colon + 1 and not _TEMPLATES[data[colon + 1]] else (0, 0)


@borrowing
def secret_at_colon(data: np.ndarray, colon: int, hi: int) -> tuple[int, int]:
    """(start, end) of the secret whose colon is at `colon`, or (0, 0): credentials of a URL, a bot's token of
    Telegram, `"auth": "..."` of Docker.
    """
    if colon == 0:
        return 0, 0
    start, end = 0, 0
    if data[colon - 1] == byte.S:
        start, end = _putty_key_at(data, colon, hi)
    elif data[colon - 1] == byte.UPPER_P:
        start, end = _wifi_password_at(data, colon, hi)
    if end > 0:
        return start, end
    if char.is_digit(data[colon - 1]):
        start = colon
        while start > 0 and colon - start < 18 and char.is_digit(data[start - 1]):
            start -= 1
        if colon - start == _ASANA:
            return _asana_at(data, start, colon, hi)
        end = _token_run(data, colon + 1, min(hi, colon + _TELEGRAM + 2))
        whole = 8 <= colon - start <= 10 and end - colon == _TELEGRAM + 1
        return (
            (start, end)
            if whole and not is_joined(data, start) and is_random(data, colon + 1, end)
            else (0, 0)
        )
    if _QUOTES[data[colon - 1]]:
        name = colon - 1
        while name > 0 and colon - name < 8 and is_letter(data[name - 1]):
            name -= 1
        start = colon + 1
        while start < hi and start - colon < 4 and char.ASSIGNS[data[start]]:
            start += 1
        if is_one_of(data, name, colon - 1, _AUTH) and start < hi and _QUOTES[data[start - 1]]:
            end = start
            while end < hi and end - start < 512 and char.IN_BASE64[data[end]]:
                end += 1
            closed = end < hi and _QUOTES[data[end]] and end - start >= _FEWEST_OF_CREDENTIALS
            return (start, end) if closed and is_random(data, start, end) else (0, 0)
    return _url_credentials_at(data, colon, hi)


@borrowing
def _is_of_manuals(data: np.ndarray, start: int, colon: int, end: int) -> bool:
    """Whether the password in `colon + 1:end` is what manuals write, or the name of the user."""
    if end - colon <= 11 and is_one_of(data, colon + 1, end, PASSWORDS_OF_MANUALS):
        return True
    same = end - colon - 1 == colon - start
    for i in range(colon - start):
        same = same and data[start + i] == data[colon + 1 + i]
    return same


@borrowing
def _url_credentials_at(data: np.ndarray, colon: int, hi: int) -> tuple[int, int]:
    """(start, end) of `user:password` when "://" is at `colon` and "@" ends it, or (0, 0)."""
    if colon == 0 or not char.is_alnum(data[colon - 1]) or colon + 6 >= hi:
        return 0, 0
    if data[colon + 1] != byte.SLASH or data[colon + 2] != byte.SLASH:
        return 0, 0
    start = colon + 3
    limit = min(hi, start + _USERINFO_REACH)
    end, first_colon = 0, 0
    i = start
    while i < limit and char.FLAGS[data[i]] & char.USERINFO:
        if data[i] == byte.COLON and first_colon == 0:
            first_colon = i
        elif data[i] == byte.AT:
            end = i
        i += 1
    if first_colon == 0 or end <= first_colon + 1 or end + 1 >= hi:
        return 0, 0
    if not char.is_alnum(data[end + 1]) and data[end + 1] != byte.OPENING_SQUARE:
        return 0, 0
    password = data[first_colon + 1]
    if data[start] == byte.DOLLAR or password == byte.DOLLAR or password == byte.ASTERISK:
        return 0, 0
    return (0, 0) if _is_of_manuals(data, start, first_colon, end) else (start, end)
