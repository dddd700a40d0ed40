"""E-mail addresses, found from their "@".

Precision choices: the domain needs a dot and an alphabetic last label that is not a common file type
(`icon@2x.png`). `git@...`, scp paths (`me@host.org:dir/file`), `scheme://user@host` and `@name@host` handles
name services and files, not people. An IPv4 address may stand for the domain (`jo@1.2.3.4`, `jo@[1.2.3.4]`).
Letters of two UTF-8 bytes count as letters (`jürgen@müller.de`). Letters of three end an address, because
Chinese and Japanese text has no space before one. But a name of such letters is a local part: at most the
last five of Chinese, Japanese or Korean, and in other scripts what a space or a sign begins, or the last
eight. Domains may end in a label of their own (`jo@例子.公司`), and `jo@doe。org` is written with their full
stop. A local part in quotes may hold anything (`"jo doe"@doe.org`), but a single word needs
no quotes: `He said "yes"@home.it`. Behind these two kinds of names, only usual endings end a domain.
"""

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.pii import byte, char
from pipeline.stages.pii.context import is_one_of, keys
from pipeline.stages.pii.ip_addresses import dotted_quad, ends_cleanly
from pipeline.stages.text import equals

MAX_LOCAL = 64  # RFC 5321 section 4.5.3.1
_MAX_DOMAIN = 255
_MAX_TLD = 24
_SCP_REACH = 128


_FILE_TYPES = keys(
    "png jpg jpeg gif svg webp css js html htm php json xml yaml yml tgz gz xz tar zip whl jar exe dll "
    "pdf txt csv log conf cfg ini toml lock tsx jsx mjs cjs scss sass less vue ipynb java cpp hpp socket "
    "timer mount service"
)
_LONGEST_FILE_TYPE = 7  # bytes; ".services" is a domain
_SOURCES = keys("py")  # of two labels: a file, although Paraguay has the domain
_FEWEST_DIGITS = 3  # of a name of digits alone: "jo@163.com", but "foo@1.bar"
_SERVICES = keys("git hg svn bzr")
_WIDE_ENDINGS = keys(
    "公司 网络 網絡 中国 中國 香港 台灣 台湾 网址 在线 商城 集团 企业 政务 公益 한국 닷컴 닷넷"
)
_WIDE_ENDING = 6  # bytes of each
_ENDINGS_OF_ABUGIDAS = keys(
    "भारत भारतम् भारोत संगठन कॉम नेट ভারত ভাৰত বাংলা ਭਾਰਤ ભારત இந்தியா இலங்கை சிங்கப்பூர் భారత్ ಭಾರತ ഭാരതം ଭାରତ "
    "ලංකා ไทย คอม ລາວ"
)
_WIDE_STOP = byte.text("。")
_MOST_WIDE = 15  # bytes of a name in Han or kana: five characters
_MOST_OF_ABUGIDA, _CUT_OF_ABUGIDA = 48, 24  # bytes of a name that a space begins, and of another
USUAL_ENDINGS = keys(
    "com net org edu gov mil int info biz name pro mobi asia app dev tech online site shop store xyz club "
    "top live email cloud page blog website work world group agency"
)
_OPENS_ADDRESS = byte.byte_set(b"<:")
_BEFORE_NAME = ~(char.ALNUM | char.LETTERS | byte.byte_set(b"_"))
_HYPHENS, _IN_QUOTES = byte.byte_set(b"-"), (char.PRINTED | char.SPACES) & ~byte.byte_set(b'"')
_NOT_HYPHENS, NOT_DOTS = ~_HYPHENS, ~byte.byte_set(b".")
_BEFORE_SLASH = char.PRINTED & ~byte.byte_set(b"[/")
_FIRST_HAN = 0xE3  # letters before it are of scripts that put spaces between words
_PUNYCODE = byte.text("xn--")


@borrowing
def _is_wide(data: np.ndarray, i: int, hi: int) -> bool:
    """Whether a letter of two bytes (Latin with marks, Greek, Cyrillic, Hebrew, Arabic) starts at `i`."""
    return i + 1 < hi and 0xC3 <= data[i] <= 0xDF and 0x80 <= data[i + 1] < 0xC0


@borrowing
def local_start(data: np.ndarray, at: int) -> int:
    """Where the local part before `at` begins; `at` itself if there is none."""
    floor = max(0, at - MAX_LOCAL - 1)
    start = at
    while start > floor:
        c = data[start - 1]
        if char.IN_LOCAL[c]:
            if c == byte.DOT and start < at and data[start] == byte.DOT:
                break
            start -= 1
        elif start - 2 >= floor and _is_wide(data, start - 2, at):
            start -= 2
        else:
            break
    if at - start > MAX_LOCAL:
        return at
    return char.run_end(data, start, at, _BEFORE_NAME)


@borrowing
def is_tld(data: np.ndarray, start: int, end: int) -> bool:
    if end - start < 2 or end - start > _MAX_TLD:
        return False
    if end - start <= _LONGEST_FILE_TYPE and is_one_of(data, start, end, _FILE_TYPES):
        return False
    if end - start > 4 and equals(data, start, end, _PUNYCODE):
        return True
    return char.run_end(data, start, end, char.LETTERS) == end


@borrowing
def _starts_a_sentence(data: np.ndarray, label: int, hi: int) -> bool:
    """Whether the next sentence, not a label, starts at `label`: "write to me@host.org.Then wait"."""
    if label + 1 >= hi or not char.is_upper(data[label]):
        return False
    return char.is_lower(data[label + 1]) and char.is_lower(data[label - 2])


@borrowing
def domain_end(data: np.ndarray, at: int, hi: int) -> int:
    """Where the longest valid domain after `at` ends; 0 if there is none."""
    limit = min(hi, at + 1 + _MAX_DOMAIN)
    label = at + 1
    good, labels = 0, 0
    first, has_name = True, False
    while True:
        end = label
        while end < limit:
            if char.IN_LABEL[data[end]]:
                end += 1
            elif _is_wide(data, end, limit):
                end += 2
            else:
                break
        if not first and end < hi and data[end] == byte.AT:  # "org-jo@": the next address begins after "-"
            hyphen = char.run_end(data, label, end, _NOT_HYPHENS)
            if hyphen < end and is_tld(data, label, hyphen):
                return hyphen
        last = char.run_start(data, end, label, _HYPHENS)
        if last == label or end - label > 63 or data[label] == byte.HYPHEN:
            return good
        if not first:
            if good > 0 and char.is_lower(data[at + 1]) and _starts_a_sentence(data, label, hi):
                return good
            is_file = labels == 1 and is_one_of(data, label, last, _SOURCES)
            if has_name and not is_file and is_tld(data, label, last):
                good = last
        if last < end or end + 1 >= limit or data[end] != byte.DOT:
            return good
        first = False
        labels += 1
        has_name = has_name or last - label >= _FEWEST_DIGITS
        has_name = has_name or char.run_end(data, label, last, char.DIGITS) < last
        label = end + 1


@borrowing
def _wide_domain_end(data: np.ndarray, at: int, hi: int) -> int:
    """Where the domain after `at` ends whose last label is one of _WIDE_ENDINGS, or a usual one behind
    letters of several bytes; 0 if there is none.
    """
    i, wide = at + 1, False
    while i < hi and i - at < MAX_LOCAL and (char.IN_LABEL[data[i]] or data[i] >= 0x80):
        if i + 2 < hi and _is_sign(data, i):
            return 0
        wide = wide or data[i] >= 0x80
        i += 1
    if i == at + 1 or i + 2 >= hi or data[i] != byte.DOT:
        return 0
    end = i + 1
    if 0xE0 <= data[end] < _FIRST_HAN:
        while end + 2 < hi and 0xE0 <= data[end] < _FIRST_HAN and not _is_sign(data, end):
            end += 3
        return end if is_one_of(data, i + 1, end, _ENDINGS_OF_ABUGIDAS) else 0
    if data[end] >= _FIRST_HAN:
        end += _WIDE_ENDING
        return end if end <= hi and is_one_of(data, i + 1, end, _WIDE_ENDINGS) else 0
    end = char.run_end(data, end, min(hi, end + _MAX_TLD), char.LOWER)
    return end if wide and _ends_usually(data, at, end) and not char.word_at(data, end, hi) else 0


@borrowing
def _stopped_domain_end(data: np.ndarray, at: int, hi: int) -> int:
    """Where the domain after `at` ends, whose lower-case labels have "。" in between; 0 if there is none."""
    i, good = char.run_end(data, at + 1, min(hi, at + MAX_LOCAL), char.IN_LABEL), 0
    while i > at + 1 and equals(data, i, hi, _WIDE_STOP):
        label = i + len(_WIDE_STOP)
        i = char.run_end(data, label, min(hi, label + _MAX_TLD + 1), char.LOWER)
        if not is_tld(data, label, i) or char.word_at(data, i, hi):
            break
        good = i
    return good


@borrowing
def _wide_local_start(data: np.ndarray, at: int) -> int:
    """Where the name with letters of three bytes before `at` begins; `at` if there is none. In a text without
    spaces, its last letters are taken for the name.
    """
    start, most, cut = at, _MOST_OF_ABUGIDA, _CUT_OF_ABUGIDA
    while start > 2 and at - start <= most:
        lead = data[start - 3]
        if _is_sign(data, start - 3) or not (0xE0 <= lead <= 0xED and data[start - 1] >= 0x80):
            break
        if lead >= _FIRST_HAN:
            most = cut = _MOST_WIDE
        start -= 3
    if at - start > most:
        return at - cut
    first = char.run_start(data, start, at - MAX_LOCAL, char.ALNUM)  # "zhang伟"
    return first if start < at and at - first > 3 else at


@borrowing
def _is_sign(data: np.ndarray, i: int) -> bool:
    """Whether a mark or a symbol of three bytes, no letter, is at `i`."""
    return data[i] == 0xE2 or data[i] == 0xEF or (data[i] == _FIRST_HAN and data[i + 1] == 0x80)


@borrowing
def _ends_usually(data: np.ndarray, at: int, end: int) -> bool:
    """Whether the domain between `at` and `end` ends in the code of a country or another usual label."""
    label = char.run_start(data, end, at, NOT_DOTS)
    return label > at and (
        (end - label == 2 and char.is_lower(data[label]))
        or data[end - 1] >= 0x80
        or is_one_of(data, label, end, USUAL_ENDINGS)
    )


@borrowing
def _quoted_local_start(data: np.ndarray, at: int) -> int:
    """Where the quote opens that closes before `at`, on the same line and around words; `at` if none does."""
    start = char.run_start(data, at - 1, max(1, at - MAX_LOCAL + 1), _IN_QUOTES) - 1
    is_open = start >= 0 and at - start > 2 and data[start] == byte.QUOTE and char.is_letter(data[start + 1])
    words = is_open and (char.is_alnum(data[at - 2]) or data[at - 2] >= 0x80)
    if not words or char.word_before(data, start):
        return at
    if start > 0 and _OPENS_ADDRESS[data[start - 1]]:
        return start
    return at if char.run_end(data, start + 1, at - 1, char.LETTERS) == at - 1 else start


@borrowing
def _is_scp_path(data: np.ndarray, end: int, hi: int) -> bool:
    if end + 1 >= hi or data[end] != byte.COLON:
        return False
    stop = min(hi, end + 1 + _SCP_REACH)
    slash = char.run_end(data, end + 1, stop, _BEFORE_SLASH)
    return slash < stop and data[slash] == byte.SLASH


@borrowing
def _ip_end(data: np.ndarray, p: int, hi: int) -> int:
    """Where the IPv4 address at `p`, in square brackets or not, ends; 0 if there is none."""
    if data[p] == byte.OPENING_SQUARE:
        end, _ = dotted_quad(data, p + 1, hi)
        return end + 1 if 0 < end < hi and data[end] == byte.CLOSING_SQUARE else 0
    end, _ = dotted_quad(data, p, hi)
    return end if end > 0 and ends_cleanly(data, p, end, hi) else 0


@borrowing
def _in_url(data: np.ndarray, start: int) -> bool:
    """Whether the user, or the password, of a URL begins at `start`."""
    i = start
    if i > 0 and data[i - 1] == byte.COLON:
        i = char.run_start(data, i - 1, start - MAX_LOCAL, char.IN_LOCAL)
    return i > 1 and data[i - 1] == byte.SLASH and data[i - 2] == byte.SLASH


@borrowing
def email_at(data: np.ndarray, at: int, hi: int) -> tuple[int, int]:
    """(start, end) of the address around the "@" at `at`, or (0, 0). Reads 64 bytes before and 383 after."""
    if at == 0 or at + 3 >= hi:
        return 0, 0
    start = local_start(data, at)
    is_plain = start < at
    if not is_plain:
        if data[at - 1] == byte.QUOTE:
            start = _quoted_local_start(data, at)
        elif data[at - 1] >= 0x80:
            start = _wide_local_start(data, at)
    if start == at:
        return 0, 0
    if start > 0 and data[start - 1] == byte.AT and not char.after_value(data, start):
        return 0, 0
    if _in_url(data, start):
        return 0, 0
    end = domain_end(data, at, hi)
    if end == 0:
        end = _ip_end(data, at + 1, hi)
    if end == 0:
        end = _wide_domain_end(data, at, hi)
    if end == 0:
        end = _stopped_domain_end(data, at, hi)
    if end == 0 or not (is_plain or _ends_usually(data, at, end)):
        return 0, 0
    if is_one_of(data, start, at, _SERVICES) or _is_scp_path(data, end, hi):
        return 0, 0
    return start, end


@borrowing
def email_after(data: np.ndarray, i: int, hi: int) -> tuple[int, int]:
    """(start, end) of the address whose local part, at least some of it, begins at `i`, or (0, 0)."""
    at = char.run_end(data, i, min(hi, i + MAX_LOCAL), char.IN_LOCAL)
    return email_at(data, at, hi) if i < at < hi and data[at] == byte.AT else (0, 0)
