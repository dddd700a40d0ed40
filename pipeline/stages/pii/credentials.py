"""Secrets: credentials inside a URL or an Authorization header, keys and tokens with their issuer's prefix or
name, JSON web tokens, private keys in PEM.

Only shapes that identify themselves count: a bare run of base64 is not reported. Prefixes and lengths are
those that the issuers document. Of a URL the user and the password go and the host stays. Templates
(`$USER:$PASSWORD`, `{user}:{password}`) and what stands for a password in manuals (`scott:tiger`,
`user:pass`, `test:test`) stay.
"""

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.pii import byte
from pipeline.stages.pii.characters import (
    BASE64,
    DIGIT,
    FLAGS,
    LETTER,
    TOKEN,
    USERINFO,
    after_value,
    is_alnum,
    is_digit,
    is_upper,
    word_at,
    word_before,
)
from pipeline.stages.pii.context import is_one_of, keys
from pipeline.stages.text import equals

_USERINFO_REACH = 256
_JWT_PART = 8
_PEM_BODY = 64

# The characters of a body. An assigned one has an optional "=" or ":" and quotes before it.
_PLAIN, _DASHED, _DOTTED, _BASE64, _ASSIGNED = range(5)
_IN_TOKEN, _IN_BASE64 = FLAGS & TOKEN != 0, FLAGS & BASE64 != 0
_BODY = np.stack(
    [FLAGS & (DIGIT | LETTER) != 0, _IN_TOKEN, _IN_TOKEN | byte.byte_set(b"."), _IN_BASE64, _IN_BASE64]
)
_HEADER, _BEGIN, _END, _PRIVATE, _DASHES, _BEARER, _BASIC, _AUTHORIZATION = (
    np.frombuffer(text, dtype=np.uint8).copy()
    for text in (
        *(b"eyJ", b"-----BEGIN ", b"-----END ", b"PRIVATE KEY", b"-----"),
        *(b"Bearer ", b"Basic ", b"uthorization"),
    )
)
_IN_CREDENTIALS = _IN_TOKEN | _IN_BASE64 | byte.byte_set(b".~")
_FEWEST_OF_CREDENTIALS = 16
_PASSWORDS_OF_MANUALS = keys(
    "pass passwd password pw pwd secret tiger test bar changeme example foo token xxx"
)
_ASSIGNS = byte.byte_set(bytes(range(33)) + b"=:\"'")
_IN_PEM = _IN_BASE64 | byte.byte_set(bytes(range(33)) + b"\\:,.()")

# prefixes, shortest and longest body (0: no limit), its characters
_RULES: tuple[tuple[bytes, int, int, int], ...] = (
    (b"AKIA ASIA", 16, 16, _PLAIN),  # AWS
    (b"secret_access_key SECRET_ACCESS_KEY SecretAccessKey", 40, 40, _ASSIGNED),
    (b"AccountKey SharedAccessKey", 40, 100, _ASSIGNED),  # Azure
    (b"AIza", 35, 35, _DASHED),  # Google
    (b"GOCSPX-", 28, 28, _DASHED),
    (b"ya29.", 30, 0, _DASHED),
    (b"ghp_ gho_ ghu_ ghs_ ghr_", 36, 255, _PLAIN),  # GitHub
    (b"github_pat_", 40, 255, _DASHED),
    (b"glpat-", 20, 0, _DASHED),  # GitLab
    (b"xoxb- xoxp- xoxa- xoxr- xoxs- xapp-", 20, 0, _DASHED),  # Slack
    (b"hooks.slack.com/services/", 30, 0, _BASE64),
    (b"sk-ant-", 24, 0, _DASHED),  # Anthropic
    (b"sk-proj- sk-svcacct-", 24, 0, _DASHED),  # OpenAI
    (b"sk-or-v1-", 64, 64, _PLAIN),  # OpenRouter
    (b"sk-", 32, 64, _PLAIN),
    (b"sk_live_ sk_test_ rk_live_ rk_test_", 16, 0, _PLAIN),  # Stripe
    (b"whsec_", 24, 0, _PLAIN),
    (b"SG.", 66, 66, _DOTTED),  # SendGrid
    (b"hf_", 30, 40, _PLAIN),  # Hugging Face
    (b"npm_", 36, 36, _PLAIN),
    (b"pypi-AgE", 50, 0, _DASHED),
    (b"dop_v1_", 64, 64, _PLAIN),  # DigitalOcean
    (b"shpat_ shpss_", 32, 32, _PLAIN),  # Shopify
    (b"gsk_", 40, 60, _PLAIN),  # Groq
    (b"xai-", 60, 100, _PLAIN),
    (b"glsa_", 32, 0, _DASHED),  # Grafana
    (b"dckr_pat_", 27, 0, _DASHED),  # Docker
    (b"lin_api_", 32, 48, _PLAIN),  # Linear
    (b"sq0atp-", 22, 22, _DASHED),  # Square
    (b"sq0csp-", 43, 43, _DASHED),
    (b"hvs.", 24, 0, _DASHED),  # HashiCorp Vault
)

# Rare bytes at which a search starts: "J" for a JSON web token, "B" for a private key, the others for the
# rules. A prefix is searched for from its last trigger.
TRIGGERS = b"_-.KSzJB"


def _trigger(prefix: bytes) -> int:
    """The index of the last separator of the prefix, or of its last rare letter."""
    separators = [i for i, c in enumerate(prefix) if c in b"_-."]
    return max(separators or [i for i, c in enumerate(prefix) if c in TRIGGERS])


_SORTED = sorted(
    (
        (prefix, least, most, alphabet)
        for prefixes, least, most, alphabet in _RULES
        for prefix in prefixes.split()
    ),
    key=lambda rule: rule[0][_trigger(rule[0])],
)
_PREFIXES = [prefix for prefix, *_ in _SORTED]
_TRIGGER = np.array([_trigger(prefix) for prefix in _PREFIXES], dtype=np.int64)
_TRIGGER_BYTE = [prefix[_trigger(prefix)] for prefix in _PREFIXES]
_FIRST_RULE = np.searchsorted(_TRIGGER_BYTE, np.arange(257)).astype(np.int64)
_PREFIX = np.frombuffer(b"".join(_PREFIXES), dtype=np.uint8).copy()
_PREFIX_START = np.array([0, *np.cumsum([len(prefix) for prefix in _PREFIXES])], dtype=np.int64)
_LIMITS = np.array([limits for _, *limits in _SORTED], dtype=np.int64)


@borrowing
def _token_at(data: np.ndarray, i: int, hi: int) -> tuple[int, int]:
    """(start, end) of the token whose prefix has its trigger at `i`, or (0, 0)."""
    for rule in range(_FIRST_RULE[data[i]], _FIRST_RULE[data[i] + 1]):
        start = i - _TRIGGER[rule]
        length = _PREFIX_START[rule + 1] - _PREFIX_START[rule]
        if start < 0 or start + length >= hi:
            continue
        same = 0
        while same < length and data[start + same] == _PREFIX[_PREFIX_START[rule] + same]:
            same += 1
        if same < length:
            continue
        least, most, alphabet = _LIMITS[rule]
        body = start + length
        if alphabet == _ASSIGNED:
            last = min(hi, body + 8)
            while body < last and _ASSIGNS[data[body]]:
                body += 1
            start = body
        elif word_before(data, start) or (
            start > 0 and data[start - 1] == byte.HYPHEN and not after_value(data, start)
        ):
            continue
        end = body
        limit = hi if most == 0 else min(hi, body + most + 1)
        while end < limit and _BODY[alphabet, data[end]]:
            end += 1
        while end > body and data[end - 1] == byte.DOT:
            end -= 1
        if end - body >= least and (most == 0 or end - body <= most) and not word_at(data, end, hi):
            return start, end
    return 0, 0


@borrowing
def _token_run(data: np.ndarray, i: int, hi: int) -> int:
    while i < hi and FLAGS[data[i]] & TOKEN:
        i += 1
    return i


@borrowing
def _jwt_at(data: np.ndarray, i: int, hi: int) -> tuple[int, int]:
    """(start, end) of the JSON web token (RFC 7519) whose "eyJ" ends at `i`, or (0, 0).

    It has three parts, or two that both start with "eyJ". After a dot it is a part of another token.
    """
    start = i - 2
    if start < 0 or not equals(data, start, i, _HEADER[:2]):
        return 0, 0
    if word_before(data, start) or (
        start > 0
        and (data[start - 1] == byte.HYPHEN or (data[start - 1] == byte.DOT and word_before(data, start - 1)))
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
            return (start, signature) if not word_at(data, signature, hi) else (0, 0)
    unsigned = equals(data, header + 1, hi, _HEADER)
    return (start, payload) if unsigned and not word_at(data, payload, hi) else (0, 0)


@borrowing
def _label_end(data: np.ndarray, i: int, hi: int) -> int:
    """Where the "-----" after the label at `i` ends (RFC 7468: upper-case words), or 0."""
    j = i
    while j < hi and j - i < 40 and (data[j] == byte.SPACE or is_upper(data[j])):
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
    while end > body and not FLAGS[data[end - 1]] & BASE64:
        end -= 1
    return (start, end) if end - body >= _PEM_BODY else (0, 0)


@borrowing
def _authorization_at(data: np.ndarray, i: int, hi: int) -> tuple[int, int]:
    """(start, end) of what follows "Authorization: Bearer" or "Basic", whose "B" is at `i`, or (0, 0)."""
    start = i + len(_BEARER)
    if not equals(data, i, hi, _BEARER):
        start = i + len(_BASIC)
        if not equals(data, i, hi, _BASIC):
            return 0, 0
    name = i
    while name > 0 and i - name < 8 and _ASSIGNS[data[name - 1]]:
        name -= 1
    if not equals(data, name - len(_AUTHORIZATION), name, _AUTHORIZATION):
        return 0, 0
    end, digits = start, 0
    while end < hi and _IN_CREDENTIALS[data[end]]:
        digits += is_digit(data[end]) or data[end] == byte.EQUALS
        end += 1
    return (start, end) if digits > 0 and end - start >= _FEWEST_OF_CREDENTIALS else (0, 0)


@borrowing
def secret_at(data: np.ndarray, i: int, hi: int) -> tuple[int, int]:
    """(start, end) of the key or token that the trigger byte at `i` belongs to, or (0, 0)."""
    if data[i] == byte.UPPER_J:
        return _jwt_at(data, i, hi)
    if data[i] == byte.UPPER_B:
        start, end = _private_key_at(data, i, hi)
        return (start, end) if end > 0 else _authorization_at(data, i, hi)
    return _token_at(data, i, hi)


@borrowing
def _is_of_manuals(data: np.ndarray, start: int, colon: int, end: int) -> bool:
    """Whether the password in `colon + 1:end` is what manuals write, or the name of the user."""
    if end - colon <= 9 and is_one_of(data, colon + 1, end, _PASSWORDS_OF_MANUALS):
        return True
    same = end - colon - 1 == colon - start
    for i in range(colon - start):
        same = same and data[start + i] == data[colon + 1 + i]
    return same


@borrowing
def url_credentials_at(data: np.ndarray, colon: int, hi: int) -> tuple[int, int]:
    """(start, end) of `user:password` when "://" is at `colon` and "@" ends it, or (0, 0)."""
    if colon == 0 or not is_alnum(data[colon - 1]) or colon + 6 >= hi:
        return 0, 0
    if data[colon + 1] != byte.SLASH or data[colon + 2] != byte.SLASH:
        return 0, 0
    start = colon + 3
    limit = min(hi, start + _USERINFO_REACH)
    end, first_colon = 0, 0
    i = start
    while i < limit and FLAGS[data[i]] & USERINFO:
        if data[i] == byte.COLON and first_colon == 0:
            first_colon = i
        elif data[i] == byte.AT:
            end = i
        i += 1
    if first_colon == 0 or end <= first_colon + 1 or end + 1 >= hi:
        return 0, 0
    if not is_alnum(data[end + 1]) and data[end + 1] != byte.OPENING_SQUARE:
        return 0, 0
    password = data[first_colon + 1]
    if data[start] == byte.DOLLAR or password == byte.DOLLAR or password == byte.ASTERISK:
        return 0, 0
    return (0, 0) if _is_of_manuals(data, start, first_colon, end) else (start, end)
