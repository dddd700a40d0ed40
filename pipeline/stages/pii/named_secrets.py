"""Passwords, tokens and keys that stand after `=` or `:` and only their name shows: `DB_PASSWORD=...`,
`"secret_key": "..."`.

A name ends in a word such as "password" or "token". Its value has digits and letters, and is not what
programs write in its place: a template, a call, an attribute, a type. A value without quotes needs more: code
writes names there.
"""

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.pii import byte, char
from pipeline.stages.pii.context import is_one_of, keys, word_start
from pipeline.stages.pii.tokens import is_random
from pipeline.stages.text import equals

NOTHING, SPOKEN, PASSWORD, TOKEN, SIGNATURE = range(5)
_PASSWORDS = (b"password", b"passwd", b"passphrase", b"pwd", b"_pass")
_TOKENS = (
    *(b"token", b"secret", b"secretkey", b"privatekey", b"adminkey", b"masterkey", b"signingkey"),
    *(b"sessionid", b"sessid", b"connect.sid", b"_session"),  # of cookies
    *(b"encryptionkey", b"accesskey", b"servicekey", b"storagekey", b"accountkey", b"apikey"),
)
_SIGNATURES = (b"sig", b"signature")
_ENDINGS = (*_PASSWORDS, *_TOKENS, *_SIGNATURES)
_REVERSED, _START = byte.joined([ending[::-1] for ending in _ENDINGS])
_KIND = np.repeat([PASSWORD, TOKEN, SIGNATURE], [len(_PASSWORDS), len(_TOKENS), len(_SIGNATURES)])
# In other languages the word stands alone, and no code follows.
_SPOKEN_WORDS = (
    "passwort kennwort passe contraseña clave senha hasło heslo wachtwoord lösenord passord adgangskode "
    "salasana jelszó parolă parola şifre пароль пароля κωδικός סיסמה "
    "密码 密碼 密码是 密碼是 密码为 密碼為 パスワード 비밀번호"
)
_WORDS = keys(_SPOKEN_WORDS)
# Words that other things are called, too
_SHORT_WORDS = "pass pw passcode psk"
_SHORT = keys(_SHORT_WORDS)
# What joins a name and a value in a sentence: "the password is ..."
_COPULAS = keys("is was lautet ist war est es era è é это jest je är er on")
LAST_LETTERS = byte.byte_set(
    bytes({ending[-1] | byte.CASE for ending in _ENDINGS})
    + bytes({word.encode()[-1] | byte.CASE for word in f"{_SPOKEN_WORDS} {_SHORT_WORDS}".split()})
)
PASSWORDS_OF_MANUALS = keys(
    "pass passwd password pw pwd secret tiger test bar changeme example foo token xxx p pa mypass "
    "mypassword yourpass mysecret dummy admin user"
)
# What the token of these is names a place in a list, or a part of a text.
_OF_LISTS = keys("page next continuation sync cursor pad eos bos unk mask first last")
_LEAST_PASSWORD, _LEAST_TOKEN, _LEAST_SIGNATURE = 8, 16, 32
MOST_BYTES = 256  # of a value: more is no password
_LONGEST_NAME = 48

_JOINS_WORDS = byte.byte_set(b"_- ")
_JOINS_NAME = byte.byte_set(b"_-. ")
_NO_LETTERS = ~char.LETTERS
_SYMBOLS = byte.byte_set(b"!@#$%^&*?+~=/")
_HEX_NUMBER = byte.text("0x")
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
def kind_of_name(data: np.ndarray, end: int) -> tuple[int, int]:
    """(kind, start) of the name that ends at `end`: by its last letters, without what joins its words."""
    for rule in range(len(_KIND)):
        i, k, stop = end, _START[rule], _START[rule + 1]
        while k < stop and i > 0 and end - i < _LONGEST_NAME:
            c = data[i - 1]
            if c | byte.CASE != _REVERSED[k] and c != _REVERSED[k]:
                if k > _START[rule] and _JOINS_WORDS[c] and data[i] != byte.SPACE:
                    i -= 1
                    continue
                break
            i -= 1
            k += 1
        if k == stop:
            return _KIND[rule], i
    start = word_start(data, end)
    if is_one_of(data, start, end, _SHORT):
        return PASSWORD, start
    return (SPOKEN, start) if is_one_of(data, start, end, _WORDS) else (NOTHING, end)


@borrowing
def before_copula(data: np.ndarray, end: int) -> int:
    """Where the word ends that stands before "is" and the like at `end`; `end` if there is none."""
    start = word_start(data, end)
    if end - start > 6 or not is_one_of(data, start, end, _COPULAS):
        return end
    before = char.run_start(data, start, start - 3, char.SPACES)
    return before if before < start else end


@borrowing
def _is_of_a_list(data: np.ndarray, name: int) -> bool:
    """Whether the word before the one at `name` says that the token is none: `next_page_token`."""
    end = char.run_start(data, name, name - 2, _JOINS_NAME)
    start = char.run_start(data, end, end - 14, char.ASCII_LETTERS)
    return is_one_of(data, start, end, _OF_LISTS)


@borrowing
def _turns(data: np.ndarray, start: int, end: int) -> tuple[int, int, int, int]:
    """(digits, letters, symbols, how often a digit follows a letter or a letter a digit)."""
    digits, letters, symbols, turns = 0, 0, 0, 0
    before = 0
    for i in range(start, end):
        now = 1 if char.is_digit(data[i]) else (2 if char.is_alnum(data[i]) else 0)
        digits += now == 1
        letters += now == 2
        symbols += _SYMBOLS[data[i]]
        turns += now > 0 and before > 0 and now != before
        before = now if now > 0 else before
    return digits, letters, symbols, turns


@borrowing
def is_value(data: np.ndarray, start: int, end: int, hi: int, kind: int, quoted: bool, colon: bool) -> bool:
    """Whether `start:end` is what a person or a generator chose, and no name of a program."""
    digits, letters, symbols, turns = _turns(data, start, end)
    if digits == 0 or letters == 0 or equals(data, start, end, _HEX_NUMBER):
        return False
    length = end - start
    if kind == SIGNATURE:
        return length >= _LEAST_SIGNATURE and turns >= 4
    if kind == TOKEN:
        if length < _LEAST_TOKEN or not is_random(data, start, end):
            return False
        return turns >= (2 if quoted else 4)
    if length < _LEAST_PASSWORD:
        return False
    if quoted or not colon or kind == SPOKEN:
        return True
    ends_line = end == hi or data[end] == byte.NEWLINE or data[end] == byte.RETURN
    return turns >= 3 or symbols > 0 or (ends_line and turns == 1 and char.is_digit(data[end - 1]))


@borrowing
def is_made_up(data: np.ndarray, start: int, end: int) -> bool:
    """Whether it is one of the passwords of manuals, perhaps with digits or a mark: "password123"."""
    stop = char.run_start(data, end, start, _NO_LETTERS)
    return stop - start < 12 and is_one_of(data, start, stop, PASSWORDS_OF_MANUALS)


@borrowing
def named_secret_at(data: np.ndarray, mark: int, hi: int) -> tuple[int, int]:
    """(start, end) of the secret whose name ends before the "=" or ":" at `mark`, or (0, 0)."""
    name = char.run_start(data, mark, mark - 4, _AFTER_NAME)
    if name > 0 and data[mark] == byte.COLON:
        name = before_copula(data, name)
    if name == 0 or not LAST_LETTERS[data[name - 1] | byte.CASE]:
        return 0, 0
    kind, begins = kind_of_name(data, name)
    if kind == NOTHING or (kind == TOKEN and _is_of_a_list(data, begins)):
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
