"""Passwords and tokens that stand without `=` or `:` after what names them: in a sentence, after an option of
a command, in a tag, as an argument of a call.

"Your password is ...", `--password ...`, `curl -u me:...`, `<password>...</password>`, `IDENTIFIED BY '...'`,
`define('DB_PASSWORD', '...')`, `net use ... password`, `net user me ...`, `sqlplus me/password@db`. A search
starts at the first digit of a value, since every password that is found has one.
"""

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.pii import byte, char
from pipeline.stages.pii.context import is_one_of, keys, word_start
from pipeline.stages.pii.named_secrets import (
    LAST_LETTERS,
    MOST_BYTES,
    NOTHING,
    PASSWORD,
    SIGNATURE,
    SPOKEN,
    TOKEN,
    before_copula,
    is_made_up,
    is_value,
    kind_of_name,
)

_REACH = 64  # bytes from the start of a value to its first digit
_LEAST = 8
# How many bytes before a value its name, its command and the word next to it are looked for
_SENTENCE, _LINE, _GAP = 64, 160, 3
_QUOTES = byte.byte_set(b"\"'`")
_BLANKS = byte.byte_set(b" \t")
_IN_VALUE = byte.byte_set(bytes(range(33, 127))) & ~byte.byte_set(b"\"'`<>[]")
_AFTER_VALUE = byte.byte_set(b".,;:)")
_STARTS_TEMPLATE = byte.byte_set(b"$<{%*@&-/(")
_STRONG = byte.byte_set(b"!#$%^&*?~")
_NO_PATHS = ~byte.byte_set(b":/\\")

_SECRET_OPTIONS = keys("p a k w pw pwd")  # of the commands below
# `mysql -p shop` asks for the password, and opens the database "shop"
_JOINED = keys("mysql mysqldump mysqladmin mysqlimport mariadb sshpass rar unrar")
_SPACED = keys(
    "sshpass login redis mongo mongosh mongodump mongorestore smbclient openssl zip unzip ldapsearch ldapadd "
    "ldapmodify sqlcmd bcp isql plink pscp psftp psexec crackmapexec netexec nxc winexe winrm dsadd dsmod"
)
_USER_OPTIONS, _CLIENTS = keys("u user"), keys("curl wget http https httpie")
_ORACLE = keys("sqlplus sqlldr connect conn exp expdp imp impdp rman")
_NET, _USE, _USER, _SECURED = keys("net"), keys("use"), keys("user"), keys("securestring")
_BEARER, _BY, _IDENTIFIED, _VALUE = keys("bearer"), keys("by"), keys("identified"), keys("value content")
_CALLS = keys("auth login httpbasicauth basicauth authenticate credentials")


@borrowing
def _kind(data: np.ndarray, end: int) -> int:
    """The kind of the name that ends at `end`."""
    if not LAST_LETTERS[data[end - 1] | byte.CASE]:
        return NOTHING
    kind, _ = kind_of_name(data, end)
    return NOTHING if kind == SIGNATURE else kind


@borrowing
def _end_of(data: np.ndarray, start: int, hi: int) -> int:
    """Where the value without quotes ends that begins at `start`, without the marks of its sentence."""
    end = char.run_end(data, start, min(hi, start + MOST_BYTES), _IN_VALUE)
    return char.run_start(data, end, start, _AFTER_VALUE)


@borrowing
def _end_of_quoted(data: np.ndarray, start: int, hi: int) -> int:
    """Where the quote is that closes the value at `start`; `start` if there is none."""
    end = start
    while end < hi and end - start < MOST_BYTES and data[end] > byte.SPACE and data[end] != data[start - 1]:
        end += 1
    return end if end < hi and data[end] == data[start - 1] else start


@borrowing
def _is_secret(data: np.ndarray, start: int, stop: int, kind: int) -> bool:
    """Whether `start:stop` is what stands for a secret of this kind, where nothing else can stand."""
    return kind != NOTHING and is_value(data, start, stop, stop, kind, True, False)


@borrowing
def _is_chosen(data: np.ndarray, start: int, end: int, spoken: bool) -> bool:
    """Whether `start:end`, which stands in a sentence or after an option, is no word of a text: digits and
    letters change often, or there are marks that words don't have. `spoken`: digits at the end are enough.
    """
    digits, letters, strong, turns, before = 0, 0, 0, 0, 0
    for i in range(start, end):
        if data[i] == byte.COLON and i + 1 < end and data[i + 1] == byte.SLASH:
            return False
        now = 1 if char.is_digit(data[i]) else (2 if char.is_alnum(data[i]) else 0)
        digits += now == 1
        letters += now == 2
        strong += _STRONG[data[i]]
        turns += now > 0 and before > 0 and now != before
        before = now
    if digits == 0 or letters < 2:
        return False
    if turns >= 3 or strong > 0:
        return True
    return spoken and turns == 1 and digits >= 2 and before == 1 and digits + letters == end - start


@borrowing
def _named_in_sentence(data: np.ndarray, end: int) -> int:
    """The kind of the last name before `end` in the same sentence: "your password for the site"."""
    i = end
    while i > 0 and end - i < _SENTENCE and data[i - 1] != byte.NEWLINE:
        if not char.is_letter(data[i - 1]):
            if data[i - 1] == byte.DOT and data[i] == byte.SPACE:
                return NOTHING
            i -= 1
            continue
        kind = _kind(data, i)
        if kind != NOTHING:
            return kind
        i = word_start(data, i)
    return NOTHING


@borrowing
def _command_before(data: np.ndarray, end: int, words: np.ndarray) -> bool:
    """Whether one of `words` stands before `end` on the same line."""
    i = end
    while i > 0 and end - i < _LINE and data[i - 1] != byte.NEWLINE:
        if not char.is_letter(data[i - 1]):
            i -= 1
            continue
        start = word_start(data, i)
        if is_one_of(data, start, i, words):
            return True
        i = start if start < i else i - 1
    return False


@borrowing
def _after_option(data: np.ndarray, option: int, end: int, start: int, stop: int) -> int:
    """Where the secret begins in `start:stop`, the argument of the option named `option:end`, or 0."""
    long = option > 1 and data[option - 2] == byte.HYPHEN
    if is_one_of(data, option, end, _USER_OPTIONS):
        for i in range(start, stop):
            if data[i] == byte.COLON:
                named = _command_before(data, option, _CLIENTS)
                return i + 1 if named and _is_secret(data, i + 1, stop, PASSWORD) else 0
        return 0
    if long and _kind(data, end) == PASSWORD:
        return start if _is_secret(data, start, stop, PASSWORD) else 0
    if long or not is_one_of(data, option, end, _SECRET_OPTIONS):
        return 0
    return start if _is_argument(data, option, start, stop, _SPACED) else 0


@borrowing
def _is_argument(data: np.ndarray, option: int, start: int, stop: int, commands: np.ndarray) -> bool:
    """Whether `start:stop` is a password, after an option that commands but `commands` use otherwise."""
    chosen = char.run_end(data, start, stop, _NO_PATHS) == stop and _is_secret(data, start, stop, PASSWORD)
    return chosen and _command_before(data, option, commands)


@borrowing
def _is_of_net_use(data: np.ndarray, blank: int, start: int, end: int) -> bool:
    r"""Whether `start:end` is the password of `net use`, behind `\\server\share` or `/user:name`."""
    before = char.run_start(data, blank, blank - _SENTENCE, char.PRINTED)
    if data[before] != byte.BACKSLASH and data[before] != byte.SLASH:
        return False
    named = _command_before(data, before, _NET) and _command_before(data, before, _USE)
    return named and _is_secret(data, start, end, PASSWORD)


@borrowing
def _follows_net_user(data: np.ndarray, blank: int) -> bool:
    """Whether `net user NAME` ends at `blank`, before a password."""
    before = char.run_start(data, blank, blank - _SENTENCE, char.PRINTED)
    i = char.run_start(data, before, before - _GAP, _BLANKS)
    if i == before or before == blank or not is_one_of(data, word_start(data, i), i, _USER):
        return False
    return _command_before(data, word_start(data, i), _NET)


@borrowing
def _of_oracle(data: np.ndarray, start: int, end: int) -> tuple[int, int]:
    """(start, end) of the password in `start:end`, `user/password@database` if it has a digit, or (0, 0)."""
    slash = start
    while slash < end and data[slash] != byte.SLASH:
        slash += 1
    at, digits = slash, 0
    while at < end and data[at] != byte.AT:
        digits += char.is_digit(data[at])
        at += 1
    return (slash + 1, at) if at < end and slash > start and digits > 0 else (0, 0)


@borrowing
def _after_word(data: np.ndarray, start: int, hi: int) -> tuple[int, int]:
    """(start, end) of the secret at `start` by the word before it, or (0, 0)."""
    end = _end_of(data, start, hi)
    if end - start < _LEAST:
        return 0, 0
    i = char.run_start(data, start, start - _GAP, _BLANKS)
    word = word_start(data, i)
    if i > 0 and not _STARTS_TEMPLATE[data[start]]:
        named = _follows_net_user(data, i) and _is_secret(data, start, end, PASSWORD)
        if named or _is_of_net_use(data, i, start, end):
            return start, end
    if is_one_of(data, word, i, _ORACLE):
        return _of_oracle(data, start, end)
    if data[start] == byte.HYPHEN and start + 2 < hi and data[start + 1] | byte.CASE == byte.P:
        return (start + 2, end) if _is_argument(data, start, start + 2, end, _JOINED) else (0, 0)
    if word == i or _STARTS_TEMPLATE[data[start]]:
        return 0, 0
    if word > 0 and data[word - 1] == byte.HYPHEN:
        secret = _after_option(data, word, i, start, end)
        return (secret, end) if secret > 0 else (0, 0)
    if is_one_of(data, word, i, _BEARER):
        return (start, end) if is_value(data, start, end, hi, TOKEN, False, False) else (0, 0)
    kind = _kind(data, i)
    spoken = kind == SPOKEN
    if kind in (NOTHING, TOKEN):  # "token" and "secret" are words of other texts, too
        before = before_copula(data, i)
        spoken = before < i
        kind = _named_in_sentence(data, before) if spoken else NOTHING
    if kind == NOTHING:
        return 0, 0
    if kind == TOKEN:
        return (start, end) if is_value(data, start, end, hi, TOKEN, False, False) else (0, 0)
    return (start, end) if _is_chosen(data, start, end, spoken) else (0, 0)


@borrowing
def _kind_before_quote(data: np.ndarray, quote: int) -> int:
    """The kind of what names the string that the quote at `quote` opens: `'DB_PASSWORD', '`, `PASSWORD '`,
    `IDENTIFIED BY '`, `key="password" value="`, `auth=('me', '`.
    """
    i = quote
    assigned = i > 0 and data[i - 1] == byte.EQUALS
    if assigned:
        word = word_start(data, i - 1)
        if not is_one_of(data, word, i - 1, _VALUE):
            return NOTHING
        i = word
    blanks, i = i, char.run_start(data, i, i - _GAP, _BLANKS)
    if not assigned and i < blanks and i > 0 and char.is_letter(data[i - 1]):
        word = word_start(data, i)
        if is_one_of(data, word, i, _BY):
            return PASSWORD if _command_before(data, word, _IDENTIFIED) else NOTHING
        secured = is_one_of(data, word, i, _SECURED)
        return PASSWORD if secured or _follows_net_user(data, i) else _kind(data, i)
    if not assigned:
        if i == 0 or data[i - 1] != byte.COMMA:
            return NOTHING
        i -= 1
    if i < 2 or not _QUOTES[data[i - 1]]:
        return NOTHING
    kind = _kind(data, i - 1)
    if kind != NOTHING or assigned:
        return kind
    opening = i - 1
    while opening > 0 and i - opening < _REACH and data[opening - 1] != data[i - 1]:
        opening -= 1
    if opening < 3 or data[opening - 2] != byte.OPENING_BRACKET:
        return NOTHING
    called = opening - 2
    called -= data[called - 1] == byte.EQUALS
    return PASSWORD if is_one_of(data, word_start(data, called), called, _CALLS) else NOTHING


@borrowing
def _in_quotes(data: np.ndarray, start: int, hi: int) -> tuple[int, int]:
    """(start, end) of the secret at `start`, behind a quote, or (0, 0)."""
    end = _end_of_quoted(data, start, hi)
    if end == start or _STARTS_TEMPLATE[data[start]]:
        return 0, 0
    if start > 3 and data[start - 2] | byte.CASE == byte.P and data[start - 3] == byte.HYPHEN:
        return (start, end) if _is_argument(data, start - 3, start, end, _JOINED) else (0, 0)
    return (start, end) if _is_secret(data, start, end, _kind_before_quote(data, start - 1)) else (0, 0)


@borrowing
def _in_tag(data: np.ndarray, start: int, hi: int) -> tuple[int, int]:
    """(start, end) of the secret at `start`, which is all that a tag holds, or (0, 0)."""
    end = char.run_end(data, start, min(hi, start + MOST_BYTES), _IN_VALUE)
    if end == hi or data[end] != byte.LESS or _STARTS_TEMPLATE[data[start]]:
        return 0, 0
    return (start, end) if _is_secret(data, start, end, _kind(data, start - 1)) else (0, 0)


@borrowing
def spoken_secret_at(data: np.ndarray, p: int, hi: int) -> tuple[int, int]:
    """(start, end) of the secret whose first digit is at `p`, or (0, 0)."""
    start = p
    while start > 0 and p - start < _REACH and _IN_VALUE[data[start - 1]]:
        start -= 1
        if char.is_digit(data[start]):
            return 0, 0
    if start == 0:
        return 0, 0
    lead, end = data[start - 1], 0
    if _BLANKS[lead] or lead >= 0x80:
        start, end = _after_word(data, start, hi)
    elif _QUOTES[lead]:
        start, end = _in_quotes(data, start, hi)
    elif lead == byte.GREATER:
        start, end = _in_tag(data, start, hi)
    return (0, 0) if end == 0 or is_made_up(data, start, end) else (start, end)
