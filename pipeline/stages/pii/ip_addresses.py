"""IP addresses, public ones or all: IPv4 in dotted decimal, IPv6 in the text forms of RFC 4291 section 2.2.

What counts as public is `is_global` of Python 3.11's `ipaddress`, from the IANA special-purpose registries,
without the groups of multicast, which are nobody's. Later releases moved a few small blocks (192.0.0.0/24,
64:ff9b:1::/48, 2002::/16, 3fff::/20 and exceptions inside 2001::/23). This list stays as it is, so that a
corpus does not change with the interpreter.

Precision choices for IPv4:
- It stands alone: `1.3.6.1.4.1`, `256.8.8.8.8`, `v1.2.3.4`, `Chrome/120.0.6099.1`, `lib-1.2.3.4` and
  `1.2.3.4.tar` are not addresses. It has no leading zeros, and no word such as "version" before it.
- Small numbers (`3.3.0.2`, `3.36.10.0`: one in a thousand addresses, most versions and sections) need a word
  such as "address" or "host" before them, or a port, a prefix length or a log line's dashes after them, or
  must be a well-known resolver. Private and reserved addresses, where they are wanted, need no word, but
  those that begin with 0 do.

For IPv6: a shortened address starts with a group of four digits, at least one of them decimal, because `a::b`
is code, as is `::1` unless all ranges are wanted. A full one has a group of more than two digits, because
eight pairs are an EUI-64.
"""

from ipaddress import IPv4Network

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.pii import byte, char
from pipeline.stages.pii.context import (
    IP_WORDS,
    is_among,
    is_one_of,
    keys,
    named_before,
    names_a_version,
    touching_word,
    word_near_before,
)
from pipeline.stages.text import equals

_BLOCKS = (
    "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/29 192.0.0.170/31 "
    "192.0.2.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/3"
)
_NOT_GLOBAL = [IPv4Network(block) for block in _BLOCKS.split()]
_NOT_GLOBAL_FIRST = np.array([int(block.network_address) for block in _NOT_GLOBAL], dtype=np.int64)
_NOT_GLOBAL_SHIFT = np.array([32 - block.prefixlen for block in _NOT_GLOBAL], dtype=np.int64)
_RESOLVERS = np.array([0x01010101, 0x08080404, 0x08080808, 0x09090909], dtype=np.int64)
_REACH = 40  # bytes
_LOG_DASHES = byte.text(" - -")
_COMPARES = byte.byte_set(b"<>~=!")
_DOMAINS = keys("com org net io info edu gov de uk fr nl me app dev ai co")


@borrowing
def ipv4_is_global(address: int) -> bool:
    """`address` as a 32-bit integer."""
    for i in range(len(_NOT_GLOBAL_FIRST)):
        if address >> _NOT_GLOBAL_SHIFT[i] == _NOT_GLOBAL_FIRST[i] >> _NOT_GLOBAL_SHIFT[i]:
            return False
    return True


@borrowing
def ipv6_is_global(high: int, low: int) -> bool:
    """`high` and `low` are the two 64-bit halves, as uint64."""
    first, second = (high >> np.uint64(48)) & np.uint64(0xFFFF), (high >> np.uint64(32)) & np.uint64(0xFFFF)
    if high == np.uint64(0):
        if low >> np.uint64(32) == np.uint64(0xFFFF):
            return ipv4_is_global(np.int64(low & np.uint64(0xFFFFFFFF)))
        return bool(low > np.uint64(1))
    if high == np.uint64(0x0100) << np.uint64(48):
        return False
    if first == np.uint64(0x2001):
        return not (second < np.uint64(0x200) or second == np.uint64(0xDB8))
    if first & np.uint64(0xFF00) == np.uint64(0xFF00):
        return False
    return not (
        first & np.uint64(0xFE00) == np.uint64(0xFC00) or first & np.uint64(0xFFC0) == np.uint64(0xFE80)
    )


@borrowing
def dotted_quad(data: np.ndarray, p: int, hi: int) -> tuple[int, int]:
    """(end, address) of the four decimal numbers at `p`, or (0, 0)."""
    address = 0
    q = p
    for octet in range(4):
        start = q
        number, q = char.number_at(data, start, hi, 4, 10)
        if q == start or number > 255 or (q - start > 1 and data[start] == byte.ZERO):
            return 0, 0
        address = address * 256 + number
        if octet < 3:
            if q >= hi or data[q] != byte.DOT:
                return 0, 0
            q += 1
    return q, address


@borrowing
def ends_cleanly(data: np.ndarray, p: int, end: int, hi: int) -> bool:
    """Whether the address `p:end` is neither part of a longer word or number, nor the stem of a file name."""
    if char.word_at(data, end, hi):
        return char.repeats(data, p, end, hi)
    if end + 1 < hi and data[end] == byte.DOT:
        return not (
            char.is_digit(data[end + 1]) or data[end + 1] == byte.UNDERSCORE or char.is_lower(data[end + 1])
        )
    if end + 1 < hi and data[end] == byte.HYPHEN:
        return char.is_digit(data[end + 1]) or not char.word_at(data, end + 1, hi)
    return True


@borrowing
def _is_compared(data: np.ndarray, p: int) -> bool:
    """Whether a version specifier stands before `p`: ">= 1.4.5.0", "~=1.4.5.0"."""
    i = char.run_start(data, p, p - 3, char.SPACES)
    if i - 2 < 0 or data[i - 1] != byte.EQUALS or not _COMPARES[data[i - 2]]:
        return False
    equal = data[i - 2] == byte.EQUALS or data[i - 2] == byte.EXCLAMATION  # filters compare addresses so
    return not (equal and named_before(data, i - 2, IP_WORDS, IP_WORDS, _REACH))


@borrowing
def _is_part_of_word(data: np.ndarray, p: int) -> bool:
    """Whether the number at `p` belongs to a word: "lib-1.2.3.4", "Chrome/120.0.6099.1", "v1.2.3.4"; but to
    none in "/ip/8.8.8.8", "ipinfo.io/8.8.8.8", "host-8.8.8.8" and "IP8.8.8.8".
    """
    if char.word_before(data, p):
        return char.is_digit(data[p - 1]) or not is_among(IP_WORDS, touching_word(data, p))
    if p < 2 or not (data[p - 1] == byte.HYPHEN or data[p - 1] == byte.SLASH):
        return False
    if not char.is_alnum(data[p - 2]) or char.is_digit(data[p - 2]):
        return False
    if is_among(IP_WORDS, touching_word(data, p - 1)):
        return False
    start = char.run_start(data, p - 1, p - 32, char.IN_LABEL)
    if data[p - 1] == byte.HYPHEN or start == 0:
        return True
    in_url = data[start - 1] == byte.DOT and is_one_of(data, start, p - 1, _DOMAINS)
    return data[start - 1] != byte.SLASH and not in_url


@borrowing
def _has_small_numbers(address: int) -> bool:
    """Whether three of the four numbers have one digit, or none has three and two or the first have one.

    False for well-known resolvers.
    """
    one_digit, three_digits = 0, False
    for octet in range(4):
        number = (address >> (8 * octet)) & 255
        one_digit += number < 10
        three_digits |= number >= 100
    if is_among(_RESOLVERS, address):
        return False
    return one_digit > 2 or (not three_digits and (one_digit == 2 or address >> 24 < 10))


@borrowing
def _is_used_as_an_address(data: np.ndarray, p: int, end: int, hi: int) -> bool:
    """Whether a URL, a port, a prefix length, a log line's dashes or a word before `p` says "address"."""
    if p - 2 >= 0 and data[p - 1] == byte.SLASH and data[p - 2] == byte.SLASH:
        return True
    if end + 1 < hi and (data[end] == byte.COLON or data[end] == byte.SLASH) and char.is_digit(data[end + 1]):
        return True
    return equals(data, end, hi, _LOG_DASHES) or word_near_before(data, p, IP_WORDS, _REACH)


@borrowing
def ipv4_end(data: np.ndarray, p: int, hi: int, any_range: bool) -> int:
    """Where the address at `p` ends, which is public unless `any_range`, or 0."""
    end, address = dotted_quad(data, p, hi)
    if end == 0:
        return 0
    is_global = ipv4_is_global(address)
    if not (is_global or any_range):
        return 0
    if _is_part_of_word(data, p) or not ends_cleanly(data, p, end, hi):
        return 0
    dot = p > 0 and data[p - 1] == byte.DOT and not (p > 1 and data[p - 2] == byte.DOT)  # but "..."
    joins = dot or (p > 0 and data[p - 1] == byte.PLUS and not char.starts_line(data, p - 1))
    if joins and not char.after_value(data, p):
        return 0
    if names_a_version(data, p) or _is_compared(data, p):
        return 0
    is_clear = not _has_small_numbers(address) or not (is_global or address >> 24 == 0)
    return end if is_clear or _is_used_as_an_address(data, p, end, hi) else 0


@borrowing
def _parse_ipv6(data: np.ndarray, p: int, hi: int) -> tuple[int, np.uint64, np.uint64, bool]:
    """(end, high half, low half, plausible) of the longest address at `p`. `end` is 0 if it does not parse,
    and negative where a second "::" is why.
    """
    zero = np.uint64(0)
    groups, gap, before_gap, widest = 0, False, 0, 0
    high, low, head_high, head_low = zero, zero, zero, zero
    q = p
    first_width, first_decimal = 0, False
    while groups < 8:
        if q + 1 < hi and data[q] == byte.COLON and data[q + 1] == byte.COLON:
            if gap:
                return -q, zero, zero, False
            gap, before_gap = True, groups
            head_high, head_low = high, low
            high, low = zero, zero
            q += 2
        elif groups > 0:
            if q + 1 < hi and data[q] == byte.COLON and char.HEX[data[q + 1]]:
                q += 1
            else:
                break
        value, end = char.number_at(data, q, hi, 5, 16)
        width = end - q
        if width == 0:
            break
        if width > 4:
            return 0, zero, zero, False
        if groups <= 6 and end < hi and data[end] == byte.DOT:
            quad_end, address = dotted_quad(data, q, hi)
            if quad_end > 0:
                high = (high << np.uint64(32)) | (low >> np.uint64(32))
                low = (low << np.uint64(32)) | np.uint64(address)
                groups += 2
                q = quad_end
                break
        if groups == 0:
            first_width = width
            for i in range(q, end):
                first_decimal |= char.is_digit(data[i])
        high = (high << np.uint64(16)) | (low >> np.uint64(48))
        low = (low << np.uint64(16)) | np.uint64(value)
        widest = max(widest, width)
        groups += 1
        q = end
    if gap:
        if groups > 7:
            return 0, zero, zero, False
        for _ in range(8 - before_gap):
            head_high = (head_high << np.uint64(16)) | (head_low >> np.uint64(48))
            head_low = head_low << np.uint64(16)
        mapped = before_gap == 0 and groups == 3 and low >> np.uint64(32) == np.uint64(0xFFFF)
        plausible = groups > 1 and before_gap > 0 and first_width == 4 and first_decimal
        return q, head_high | high, head_low | low, mapped or plausible
    return (q, high, low, widest > 2) if groups == 8 else (0, zero, zero, False)


@borrowing
def _is_label(data: np.ndarray, colon: int) -> bool:
    """Whether a word that is no group of an address ends at `colon`: "addr:", "ip6:"."""
    if data[colon] != byte.COLON:
        return False
    start = char.run_start(data, colon, colon - 12, char.ALNUM)
    is_hex = char.run_end(data, start, colon, char.HEX) == colon
    return start < colon and not (is_hex and colon - start <= 4)


@borrowing
def ipv6_at(data: np.ndarray, colon: int, hi: int, any_range: bool) -> tuple[int, int]:
    """(start, end) of the address whose first colon is at `colon`, which is public unless `any_range`, or
    (0, 0).

    Reads at most 6 bytes before and 45 after.
    """
    start = char.run_start(data, colon, colon - 5, char.HEX)
    if colon - start > 4 or colon + 1 >= hi or (colon == start and data[colon + 1] != byte.COLON):
        return 0, 0
    if char.word_before(data, start):
        return 0, 0
    dot = start > 0 and data[start - 1] == byte.DOT and not (start > 1 and data[start - 2] == byte.DOT)
    joins = dot or (start > 0 and data[start - 1] == byte.COLON)
    if joins and not char.after_value(data, start) and not _is_label(data, start - 1):
        return 0, 0
    end, high, low, plausible = _parse_ipv6(data, start, hi)
    if end < 0:  # a list with ":" between the addresses?
        end, stop = 0, -end
        for q in range(colon + 1, stop):
            if data[q] == byte.COLON and char.repeats(data, start, q, hi):
                end, high, low, plausible = _parse_ipv6(data, start, q)
                break
    if end <= 0 or (end < hi and char.is_alnum(data[end])):
        return 0, 0
    if any_range:
        plausible |= high == np.uint64(0) and low == np.uint64(1)
    elif not ipv6_is_global(high, low):
        return 0, 0
    if not plausible:
        return 0, 0
    if char.repeats(data, start, end, hi):
        return start, end
    more_follows = end + 1 < hi and (char.is_alnum(data[end + 1]) or data[end + 1] == byte.COLON)
    if more_follows and data[end] == byte.COLON:
        return 0, 0
    return start, end
