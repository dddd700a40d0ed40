"""Secrets: credentials inside a URL, a connection string or an Authorization header, keys and tokens with
their issuer's prefix or name, JSON web tokens, private keys in PEM and PuTTY's, passwords of Wi-Fi codes.

Only shapes that identify themselves count: a bare run of base64 is not reported. Of a URL the user and the
password go and the host stays. Templates (`$USER:$PASSWORD`, `{user}:{password}`) and what stands for a
password in manuals (`scott:tiger`, `user:pass`, `test:test`) stay.
"""

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.pii import byte, char
from pipeline.stages.pii.context import is_one_of, keys
from pipeline.stages.pii.named_secrets import PASSWORDS_OF_MANUALS
from pipeline.stages.pii.tokens import is_joined, is_random, token_at
from pipeline.stages.text import equals

_USERINFO_REACH = 256
_JWT_PART = 8
_PEM_BODY = 64

_HEADER, _BEGIN, _END, _PRIVATE, _DASHES, _BEFORE_Z, _AFTER_Z, _DATA_CENTER, _LINES, _MAC, _WIFI = (
    byte.text(written)
    for written in (
        *("eyJ", "-----BEGIN ", "-----END ", "PRIVATE KEY", "-----"),
        *("uthori", "ation", "us", "Private-Lines", "Private-MAC: ", "WIFI:"),
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
_IN_PEM_LABEL, _OUTSIDE_BASE64 = char.UPPER | char.SPACES, ~char.IN_BASE64
_IN_SETTING = char.PRINTED & ~byte.byte_set(b";\"'")
# What stands before the private lines of PuTTY's key, and in them
_BEFORE_LINES = char.DIGITS | byte.byte_set(bytes(range(33)))
_IN_LINES = char.IN_BASE64 | byte.byte_set(b"\n\r")


@borrowing
def _jwt_at(data: np.ndarray, i: int, hi: int) -> tuple[int, int]:
    """(start, end) of the JSON web token (RFC 7519) whose "eyJ" ends at `i`, or (0, 0).

    It has three parts, or two that both start with "eyJ". After a dot it is a part of another token.
    """
    start = i - 2
    if start < 0 or not equals(data, start, i, _HEADER[:2]):
        return 0, 0
    before = data[start - 1] if start > 0 else byte.SPACE
    after_dot = before == byte.DOT and char.word_before(data, start - 1)
    if char.word_before(data, start) or before == byte.HYPHEN or after_dot:
        return 0, 0
    header = char.run_end(data, i, hi, char.IN_TOKEN)
    if header - start < _JWT_PART or header + 3 >= hi or data[header] != byte.DOT:
        return 0, 0
    payload = char.run_end(data, header + 1, hi, char.IN_TOKEN)
    if payload - header <= _JWT_PART:
        return 0, 0
    if payload < hi and data[payload] == byte.DOT:
        signature = char.run_end(data, payload + 1, hi, char.IN_TOKEN)
        if signature - payload > _JWT_PART:
            return (start, signature) if not char.word_at(data, signature, hi) else (0, 0)
    unsigned = equals(data, header + 1, hi, _HEADER)
    return (start, payload) if unsigned and not char.word_at(data, payload, hi) else (0, 0)


@borrowing
def _label_end(data: np.ndarray, i: int, hi: int) -> int:
    """Where the "-----" after the label at `i` ends (RFC 7468: upper-case words), or 0."""
    end = char.run_end(data, i, min(hi, i + 40), _IN_PEM_LABEL)
    return end + 5 if equals(data, end, hi, _DASHES) else 0


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
    end = char.run_start(data, end, body, _OUTSIDE_BASE64)
    return (start, end) if end - body >= _PEM_BODY else (0, 0)


@borrowing
def _authorization_at(data: np.ndarray, i: int, hi: int) -> tuple[int, int]:
    """(start, end) of what follows "Authorization: Bearer", Basic or Token, whose "z" is at `i`."""
    if not (equals(data, i - 6, hi, _BEFORE_Z) and equals(data, i + 1, hi, _AFTER_Z)):
        return 0, 0
    scheme = char.run_end(data, i + 6, min(hi, i + 16), char.ASSIGNS)
    start = char.run_end(data, scheme, min(hi, scheme + 8), char.ALNUM)
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
    """(start, end) of a bot's token whose first dot is at `dot`: a base64 id, six characters, at least 27."""
    if dot + 34 >= hi or data[dot + 7] != byte.DOT:
        return 0, 0
    start = char.run_start(data, dot, dot - 30, char.IN_TOKEN)
    end = char.run_end(data, dot + 8, min(hi, dot + 60), char.IN_TOKEN)
    whole = 23 <= dot - start <= 28 and char.run_end(data, dot + 1, dot + 7, char.IN_TOKEN) == dot + 7
    is_named = is_one_of(data, start, start + 1, _DISCORD) and char.is_upper(data[start])
    return (start, end) if whole and is_named and end - dot >= 35 else (0, 0)


@borrowing
def _mailchimp_at(data: np.ndarray, hyphen: int, hi: int) -> tuple[int, int]:
    """(start, end) of Mailchimp's key, 32 hexadecimal digits and "-us12", whose hyphen is at `hyphen`."""
    start = hyphen - _HEX_KEY
    if start < 0 or hyphen + 3 >= hi or not equals(data, hyphen + 1, hi, _DATA_CENTER):
        return 0, 0
    end = char.run_end(data, hyphen + 3, min(hi, hyphen + 6), char.DIGITS)
    whole = char.run_end(data, start, hyphen, char.HEX) == hyphen and 4 <= end - hyphen <= 5
    joined = is_joined(data, start) or char.word_at(data, end, hi)
    return (start, end) if whole and not joined else (0, 0)


@borrowing
def _asana_at(data: np.ndarray, start: int, colon: int, hi: int) -> tuple[int, int]:
    """(start, end) of a token of Asana: `1/`, the 16 digits at `start`, a colon, 32 hexadecimal digits."""
    if start < 2 or data[start - 1] != byte.SLASH or not char.is_digit(data[start - 2]):
        return 0, 0
    end = char.run_end(data, colon + 1, min(hi, colon + _HEX_KEY + 2), char.HEX)
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
    name = char.run_start(data, equal, equal - 10, char.LETTERS)
    if not is_one_of(data, name, equal, _PASSWORD):
        return 0, 0
    end = char.run_end(data, equal + 1, min(hi, equal + 128), _IN_SETTING)
    before = char.run_start(data, name, 0, char.SPACES)
    in_string = (before > 0 and data[before - 1] == byte.SEMICOLON) or (
        end < hi and data[end] == byte.SEMICOLON
    )
    if not in_string or end - equal <= _FEWEST_OF_PASSWORD or _TEMPLATES[data[equal + 1]]:
        return 0, 0
    return (0, 0) if is_one_of(data, equal + 1, end, PASSWORDS_OF_MANUALS) else (equal + 1, end)


@borrowing
def _putty_key_at(data: np.ndarray, colon: int, hi: int) -> tuple[int, int]:
    """(start, end) of the private lines of PuTTY's key, with "Private-Lines" before the colon, or (0, 0)."""
    if colon < len(_LINES) or not equals(data, colon - len(_LINES), colon, _LINES):
        return 0, 0
    start = char.run_end(data, colon + 1, min(hi, colon + 8), _BEFORE_LINES)
    end = char.run_end(data, start, hi, _IN_LINES)
    # the lines end where "Private-MAC" begins, whose letters are base64, too
    mac = end - (len(_MAC) - len(b"-MAC: "))
    if mac > start and equals(data, mac, hi, _MAC):
        return start, char.run_end(data, mac + len(_MAC), hi, char.HEX)
    return (start, end) if end - start >= _PEM_BODY else (0, 0)


@borrowing
def _wifi_password_at(data: np.ndarray, colon: int, hi: int) -> tuple[int, int]:
    """(start, end) of the password after the colon of "P:" in a QR code: `WIFI:S:name;T:WPA;P:password;;`."""
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
        start = char.run_start(data, colon, colon - 18, char.DIGITS)
        if colon - start == _ASANA:
            return _asana_at(data, start, colon, hi)
        end = char.run_end(data, colon + 1, min(hi, colon + _TELEGRAM + 2), char.IN_TOKEN)
        whole = 8 <= colon - start <= 10 and end - colon == _TELEGRAM + 1 and not is_joined(data, start)
        return (start, end) if whole and is_random(data, colon + 1, end) else (0, 0)
    if _QUOTES[data[colon - 1]]:
        name = char.run_start(data, colon - 1, colon - 8, char.LETTERS)
        start = char.run_end(data, colon + 1, min(hi, colon + 4), char.ASSIGNS)
        if is_one_of(data, name, colon - 1, _AUTH) and start < hi and _QUOTES[data[start - 1]]:
            end = char.run_end(data, start, min(hi, start + 512), char.IN_BASE64)
            closed = end < hi and _QUOTES[data[end]] and end - start >= _FEWEST_OF_CREDENTIALS
            return (start, end) if closed and is_random(data, start, end) else (0, 0)
    return _url_credentials_at(data, colon, hi)


@borrowing
def _is_of_manuals(data: np.ndarray, start: int, colon: int, end: int) -> bool:
    """Whether the password in `colon + 1:end` is what manuals write, or the name of the user."""
    if end - colon <= 11 and is_one_of(data, colon + 1, end, PASSWORDS_OF_MANUALS):
        return True
    return end - colon - 1 == colon - start and equals(data, start, colon, data[colon + 1 : end])


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
    while i < limit and char.IN_USERINFO[data[i]]:
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
