"""Secrets: credentials inside a URL, keys and tokens that their issuer gave a prefix, JSON web tokens,
private keys in PEM.

Only shapes that say what they are: a bare run of base64 is not reported. Prefixes and lengths are those that
the issuers document. Of a URL the user and the password go, the host stays; templates (`$USER:$PASSWORD`,
`{user}:{password}`) stay.
"""

import numpy as np

from pipeline.stages.compiled import part
from pipeline.stages.pii.characters import BASE64, FLAGS, TOKEN, USERINFO, is_alnum, is_word, word_at

_USERINFO_REACH = 256
_JWT_PART = 8
_PEM_BODY = 64

# What a body may hold beside letters and digits.
_PLAIN, _DASHED, _DOTTED, _BASE64, _ASSIGNED = 0, 1, 3, 4, 12

# prefix, shortest and longest body (0: no limit), its characters.
_RULES: tuple[tuple[bytes, int, int, int], ...] = (
    (b"AKIA", 16, 16, _PLAIN),  # AWS
    (b"ASIA", 16, 16, _PLAIN),
    (b"secret_access_key", 40, 40, _ASSIGNED),
    (b"SECRET_ACCESS_KEY", 40, 40, _ASSIGNED),
    (b"AIza", 35, 35, _DASHED),  # Google
    (b"GOCSPX-", 28, 28, _DASHED),
    (b"ya29.", 30, 0, _DASHED),
    (b"ghp_", 36, 255, _PLAIN),  # GitHub
    (b"gho_", 36, 255, _PLAIN),
    (b"ghu_", 36, 255, _PLAIN),
    (b"ghs_", 36, 255, _PLAIN),
    (b"ghr_", 36, 255, _PLAIN),
    (b"github_pat_", 40, 255, _DASHED),
    (b"glpat-", 20, 0, _DASHED),  # GitLab
    (b"xoxb-", 20, 0, _DASHED),  # Slack
    (b"xoxp-", 20, 0, _DASHED),
    (b"xoxa-", 20, 0, _DASHED),
    (b"xoxr-", 20, 0, _DASHED),
    (b"xoxs-", 20, 0, _DASHED),
    (b"xapp-", 20, 0, _DASHED),
    (b"hooks.slack.com/services/", 30, 0, _BASE64),
    (b"sk-ant-", 24, 0, _DASHED),  # Anthropic
    (b"sk-proj-", 24, 0, _DASHED),  # OpenAI
    (b"sk-svcacct-", 24, 0, _DASHED),
    (b"sk-or-v1-", 64, 64, _PLAIN),  # OpenRouter
    (b"sk-", 32, 64, _PLAIN),
    (b"sk_live_", 16, 0, _PLAIN),  # Stripe
    (b"sk_test_", 16, 0, _PLAIN),
    (b"rk_live_", 16, 0, _PLAIN),
    (b"rk_test_", 16, 0, _PLAIN),
    (b"whsec_", 24, 0, _PLAIN),
    (b"SG.", 66, 66, _DOTTED),  # SendGrid
    (b"hf_", 30, 40, _PLAIN),  # Hugging Face
    (b"npm_", 36, 36, _PLAIN),
    (b"pypi-AgE", 50, 0, _DASHED),
    (b"dop_v1_", 64, 64, _PLAIN),  # DigitalOcean
    (b"shpat_", 32, 32, _PLAIN),  # Shopify
    (b"shpss_", 32, 32, _PLAIN),
    (b"gsk_", 40, 60, _PLAIN),  # Groq
    (b"xai-", 60, 100, _PLAIN),
    (b"glsa_", 32, 0, _DASHED),  # Grafana
    (b"dckr_pat_", 27, 0, _DASHED),  # Docker
    (b"lin_api_", 32, 48, _PLAIN),  # Linear
    (b"sq0atp-", 22, 22, _DASHED),  # Square
    (b"sq0csp-", 43, 43, _DASHED),
    (b"hvs.", 24, 0, _DASHED),  # HashiCorp Vault
)

# Rare bytes that start a look: "J" for a JSON web token, "B" for a private key, the others for the rules. A
# prefix is looked for from its last one.
TRIGGERS = b"_-.KSzJB"


def _trigger(prefix: bytes) -> int:
    """The index of the last separator of the prefix, or of its last rare letter."""
    separators = [i for i, c in enumerate(prefix) if c in b"_-."]
    return max(separators or [i for i, c in enumerate(prefix) if c in TRIGGERS])


_SORTED = sorted(_RULES, key=lambda rule: rule[0][_trigger(rule[0])])
_TRIGGER = np.array([_trigger(prefix) for prefix, *_ in _SORTED], dtype=np.int64)
_FIRST_RULE = np.searchsorted([prefix[_trigger(prefix)] for prefix, *_ in _SORTED], np.arange(257)).astype(
    np.int64
)
_PREFIX = np.frombuffer(b"".join(prefix for prefix, *_ in _SORTED), dtype=np.uint8).copy()
_PREFIX_START = np.array([0, *np.cumsum([len(prefix) for prefix, *_ in _SORTED])], dtype=np.int64)
_LIMITS = np.array([limits for _, *limits in _SORTED], dtype=np.int64)


@part
def _in_body(c: int, allowed: int) -> bool:
    if allowed & _BASE64:
        return FLAGS[c] & BASE64 != 0 or c == 47
    return is_alnum(c) or (allowed & 1 != 0 and FLAGS[c] & TOKEN != 0) or (allowed == _DOTTED and c == 46)


@part
def _token_at(data: np.ndarray, i: int, lo: int, hi: int) -> tuple[int, int]:
    """(start, end) of the token whose prefix has its trigger at `i`, or (0, 0)."""
    for rule in range(_FIRST_RULE[data[i]], _FIRST_RULE[data[i] + 1]):
        start = i - _TRIGGER[rule]
        length = _PREFIX_START[rule + 1] - _PREFIX_START[rule]
        if start < lo or start + length >= hi:
            continue
        same = 0
        while same < length and data[start + same] == _PREFIX[_PREFIX_START[rule] + same]:
            same += 1
        if same < length:
            continue
        allowed = _LIMITS[rule, 2]
        body = start + length
        if allowed == _ASSIGNED:
            while (
                body < hi
                and body - start - length < 8
                and (
                    data[body] <= 32
                    or data[body] == 61
                    or data[body] == 58
                    or data[body] == 34
                    or data[body] == 39
                )
            ):
                body += 1
            start = body
        elif start > lo and (is_word(data[start - 1]) or data[start - 1] == 45):
            continue
        end = body
        limit = hi if _LIMITS[rule, 1] == 0 else min(hi, body + _LIMITS[rule, 1] + 1)
        while end < limit and _in_body(data[end], allowed):
            end += 1
        while end > body and data[end - 1] == 46:
            end -= 1
        if (
            end - body >= _LIMITS[rule, 0]
            and (_LIMITS[rule, 1] == 0 or end - body <= _LIMITS[rule, 1])
            and not word_at(data, end, hi)
        ):
            return start, end
    return 0, 0


@part
def _token_run(data: np.ndarray, i: int, hi: int) -> int:
    while i < hi and FLAGS[data[i]] & TOKEN:
        i += 1
    return i


@part
def _jwt_at(data: np.ndarray, i: int, lo: int, hi: int) -> tuple[int, int]:
    """(start, end) of the JSON web token (RFC 7519) whose "eyJ" ends at `i`, or (0, 0): three parts, or two
    that both start so.
    """
    start = i - 2
    if (
        start < lo
        or data[start] != 101
        or data[start + 1] != 121
        or (start > lo and FLAGS[data[start - 1]] & TOKEN)
    ):
        return 0, 0
    header = _token_run(data, i, hi)
    if header - start < _JWT_PART or header + 3 >= hi or data[header] != 46:
        return 0, 0
    payload = _token_run(data, header + 1, hi)
    if payload - header <= _JWT_PART:
        return 0, 0
    if payload < hi and data[payload] == 46:
        signature = _token_run(data, payload + 1, hi)
        if signature - payload > _JWT_PART:
            return (start, signature) if not word_at(data, signature, hi) else (0, 0)
    unsigned = data[header + 1] == 101 and data[header + 2] == 121 and data[header + 3] == 74
    return (start, payload) if unsigned and not word_at(data, payload, hi) else (0, 0)


_BEGIN = np.frombuffer(b"-----BEGIN ", dtype=np.uint8).copy()
_END = np.frombuffer(b"-----END ", dtype=np.uint8).copy()
_PRIVATE = np.frombuffer(b"PRIVATE KEY", dtype=np.uint8).copy()


@part
def _equals(data: np.ndarray, i: int, hi: int, expected: np.ndarray) -> bool:
    if i < 0 or i + len(expected) > hi:
        return False
    for j in range(len(expected)):  # noqa: SIM110 - any() over a generator does not compile
        if data[i + j] != expected[j]:
            return False
    return True


@part
def _label_end(data: np.ndarray, i: int, hi: int) -> int:
    """Where the "-----" after the label at `i` ends (RFC 7468: upper-case words), or 0."""
    j = i
    while j < hi and j - i < 40 and (data[j] == 32 or 65 <= data[j] <= 90):
        j += 1
    return j + 5 if _equals(data, j, hi, _BEGIN[:5]) else 0


@part
def _private_key_at(data: np.ndarray, i: int, lo: int, hi: int) -> tuple[int, int]:
    """(start, end) of the PEM block whose "BEGIN" starts at `i`, or (0, 0). Stops at the next "--", so
    repeated openings cost linear time.
    """
    start = i - 5
    if start < lo or not _equals(data, start, hi, _BEGIN):
        return 0, 0
    body = _label_end(data, i + 6, hi)
    private = False
    for j in range(i + 6, body - 5):
        private = private or _equals(data, j, body, _PRIVATE)
    if not private:
        return 0, 0
    end = body
    while end < hi:
        c = data[end]
        dash = c == 45 and not (end + 1 < hi and data[end + 1] == 45)
        if not (
            FLAGS[c] & BASE64
            or c == 47
            or c <= 32
            or c == 92
            or c == 58
            or c == 44
            or c == 46
            or c == 40
            or c == 41
            or dash
        ):
            break
        end += 1
    if _equals(data, end, hi, _END):
        closed = _label_end(data, end + 9, hi)
        if closed > 0:
            return start, closed
    while end > body and not FLAGS[data[end - 1]] & BASE64:
        end -= 1
    return (start, end) if end - body >= _PEM_BODY else (0, 0)


@part
def secret_at(data: np.ndarray, i: int, lo: int, hi: int) -> tuple[int, int]:
    """(start, end) of the key or token that the trigger byte at `i` belongs to, or (0, 0)."""
    if data[i] == 74:
        return _jwt_at(data, i, lo, hi)
    if data[i] == 66:
        return _private_key_at(data, i, lo, hi)
    return _token_at(data, i, lo, hi)


@part
def url_credentials_at(data: np.ndarray, colon: int, lo: int, hi: int) -> tuple[int, int]:
    """(start, end) of `user:password` when "://" is at `colon` and "@" ends it, or (0, 0)."""
    if (
        colon == lo
        or not is_alnum(data[colon - 1])
        or colon + 6 >= hi
        or data[colon + 1] != 47
        or data[colon + 2] != 47
    ):
        return 0, 0
    start = colon + 3
    limit = min(hi, start + _USERINFO_REACH)
    end, first_colon = 0, 0
    i = start
    while i < limit and FLAGS[data[i]] & USERINFO:
        if data[i] == 58 and first_colon == 0:
            first_colon = i
        elif data[i] == 64:
            end = i
        i += 1
    if (
        first_colon == 0
        or end <= first_colon + 1
        or end + 1 >= hi
        or not (is_alnum(data[end + 1]) or data[end + 1] == 91)
    ):
        return 0, 0
    if data[start] == 36 or data[first_colon + 1] == 36 or data[first_colon + 1] == 42:
        return 0, 0
    return start, end
