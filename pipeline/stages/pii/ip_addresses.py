"""Public IP addresses: IPv4 in dotted decimal, IPv6 in the text forms of RFC 4291 section 2.2.

What counts as public is `is_global` of Python 3.11's `ipaddress`, from the IANA special-purpose registries.
Later releases moved a few small blocks (192.0.0.0/24, 64:ff9b:1::/48, 2002::/16, 3fff::/20 and exceptions
inside 2001::/23); they stay as here, so that a corpus does not change with the interpreter.

Precision choices: a dotted number is an address only alone (`1.3.6.1.4.1`, `256.8.8.8.8`, `v1.2.3.4`,
`Chrome/120.0.6099.1`, `lib-1.2.3.4` and `1.2.3.4.tar` are not), without leading zeros, and not after a word
such as "version" or "section". One of small numbers (`3.3.0.2`, `3.36.10.0`: one in a thousand addresses,
most versions and sections) needs a word such as "address" or "host" before it, a port, a prefix length or a
log line's dashes after it, or to be a resolver that everybody knows. A shortened IPv6 address starts with a
group of four digits, one of them decimal, because `a::b` is code; a full one has a group of more than two
digits, because eight pairs are an EUI-64.
"""

import numpy as np

from pipeline.stages.compiled import part
from pipeline.stages.pii.characters import FLAGS, HEX, digit_at, is_digit, is_word, word_at, word_before
from pipeline.stages.pii.context import IP_WORDS, names_a_version, word_near_before

# (first address, prefix length) of the blocks that are not global.
_IPV4_BLOCKS = (
    ((0, 0, 0, 0), 8),
    ((10, 0, 0, 0), 8),
    ((100, 64, 0, 0), 10),
    ((127, 0, 0, 0), 8),
    ((169, 254, 0, 0), 16),
    ((172, 16, 0, 0), 12),
    ((192, 0, 0, 0), 29),
    ((192, 0, 0, 170), 31),
    ((192, 0, 2, 0), 24),
    ((192, 168, 0, 0), 16),
    ((198, 18, 0, 0), 15),
    ((198, 51, 100, 0), 24),
    ((203, 0, 113, 0), 24),
    ((240, 0, 0, 0), 4),
)
_IPV4_RESERVED = np.array([int.from_bytes(bytes(first), "big") for first, _ in _IPV4_BLOCKS], dtype=np.int64)
_IPV4_SHIFT = np.array([32 - prefix for _, prefix in _IPV4_BLOCKS], dtype=np.int64)


_RESOLVERS = np.array(
    [int.from_bytes(bytes([octet] * 4), "big") for octet in (1, 8, 9)] + [0x08080404], dtype=np.int64
)
_REACH = 40


@part
def ipv4_is_global(address: int) -> bool:
    """`address` as a 32-bit integer."""
    for i in range(len(_IPV4_RESERVED)):
        if address >> _IPV4_SHIFT[i] == _IPV4_RESERVED[i] >> _IPV4_SHIFT[i]:
            return False
    return True


@part
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
    return not (
        first & np.uint64(0xFE00) == np.uint64(0xFC00) or first & np.uint64(0xFFC0) == np.uint64(0xFE80)
    )


@part
def _dotted_quad(data: np.ndarray, p: int, hi: int) -> tuple[int, int]:
    """(end, address) of the four decimal numbers at `p`, or (0, 0)."""
    address = 0
    q = p
    for octet in range(4):
        number = 0
        start = q
        while q < hi and q - start < 4 and is_digit(data[q]):
            number = number * 10 + (data[q] - 48)
            q += 1
        if q == start or number > 255 or (q - start > 1 and data[start] == 48):
            return 0, 0
        address = address * 256 + number
        if octet < 3:
            if q >= hi or data[q] != 46:
                return 0, 0
            q += 1
    return q, address


@part
def _ends_cleanly(data: np.ndarray, end: int, hi: int) -> bool:
    """Whether the address is neither part of a longer word or number, nor the stem of a file name."""
    if word_at(data, end, hi):
        return False
    if end + 1 < hi and data[end] == 46:
        return not (digit_at(data, end + 1, hi) or data[end + 1] == 95 or 97 <= data[end + 1] <= 122)
    if end + 1 < hi and data[end] == 45:
        return is_digit(data[end + 1]) or not word_at(data, end + 1, hi)
    return True


@part
def _is_compared(data: np.ndarray, p: int, lo: int) -> bool:
    """Whether a version specifier stands before `p`: ">= 1.4.5.0", "~=1.4.5.0"."""
    i = p
    while i > lo and p - i < 3 and data[i - 1] == 32:
        i -= 1
    return (
        i - 2 >= lo and data[i - 1] == 61 and (data[i - 2] == 60 or data[i - 2] == 62 or data[i - 2] == 126)
    )


@part
def _has_small_numbers(address: int) -> bool:
    """Whether three of the four numbers have one digit, or two have one and none has three; the resolvers
    excepted.
    """
    one_digit, three_digits = 0, False
    for octet in range(4):
        number = (address >> (8 * octet)) & 255
        one_digit += number < 10
        three_digits |= number >= 100
    for i in range(len(_RESOLVERS)):
        if address == _RESOLVERS[i]:
            return False
    return one_digit > 2 or (one_digit == 2 and not three_digits)


@part
def _is_used_as_an_address(data: np.ndarray, p: int, end: int, lo: int, hi: int) -> bool:
    """Whether what stands around `p:end` says that it is an address: a URL, a port, a prefix length, the
    dashes of a log line, a word before it.
    """
    if p - 2 >= lo and data[p - 1] == 47 and data[p - 2] == 47:
        return True
    if end + 1 < hi and (data[end] == 58 or data[end] == 47) and is_digit(data[end + 1]):
        return True
    if (
        end + 3 < hi
        and data[end] == 32
        and data[end + 1] == 45
        and data[end + 2] == 32
        and data[end + 3] == 45
    ):
        return True
    return word_near_before(data, p, lo, IP_WORDS, _REACH)


@part
def ipv4_end(data: np.ndarray, p: int, lo: int, hi: int) -> int:
    """Where the public address at `p` ends, or 0."""
    end, address = _dotted_quad(data, p, hi)
    if (
        end == 0
        or not ipv4_is_global(address)
        or word_before(data, p, lo)
        or not _ends_cleanly(data, end, hi)
    ):
        return 0
    if p > lo:
        c = data[p - 1]
        if c == 46 or c == 43:
            return 0
        if (c == 45 or c == 47) and p - 1 > lo and is_word(data[p - 2]) and not is_digit(data[p - 2]):
            return 0
    if names_a_version(data, p, lo) or _is_compared(data, p, lo):
        return 0
    return end if not _has_small_numbers(address) or _is_used_as_an_address(data, p, end, lo, hi) else 0


@part
def _hex_value(c: int) -> int:
    return c - 48 if c <= 57 else (c | 32) - 87


@part
def _group(data: np.ndarray, p: int, hi: int) -> tuple[int, int]:
    """(digits, value) of the hexadecimal run at `p`, counted to 5."""
    q, value = p, 0
    while q < hi and q - p < 5 and FLAGS[data[q]] & HEX:
        value = value * 16 + _hex_value(data[q])
        q += 1
    return q - p, value


@part
def _parse_ipv6(data: np.ndarray, p: int, hi: int) -> tuple[int, np.uint64, np.uint64, bool]:
    """(end, high half, low half, plausible) of the longest address at `p`; end is 0 if it does not parse."""
    zero = np.uint64(0)
    groups, gap, before_gap, widest = 0, False, 0, 0
    high, low, head_high, head_low = zero, zero, zero, zero
    q = p
    first_width, first_decimal = 0, False
    while groups < 8:
        if q + 1 < hi and data[q] == 58 and data[q + 1] == 58:
            if gap:
                return 0, zero, zero, False
            gap, before_gap = True, groups
            head_high, head_low = high, low
            high, low = zero, zero
            q += 2
        elif groups > 0:
            if q + 1 < hi and data[q] == 58 and FLAGS[data[q + 1]] & HEX:
                q += 1
            else:
                break
        width, value = _group(data, q, hi)
        if width == 0:
            break
        if width > 4:
            return 0, zero, zero, False
        if groups <= 6 and q + width < hi and data[q + width] == 46:
            end, address = _dotted_quad(data, q, hi)
            if end > 0:
                high = (high << np.uint64(32)) | (low >> np.uint64(32))
                low = (low << np.uint64(32)) | np.uint64(address)
                groups += 2
                q = end
                break
        if groups == 0:
            first_width = width
            for i in range(q, q + width):
                first_decimal |= is_digit(data[i])
        high = (high << np.uint64(16)) | (low >> np.uint64(48))
        low = (low << np.uint64(16)) | np.uint64(value)
        widest = max(widest, width)
        groups += 1
        q += width
    if gap:
        if groups > 7:
            return 0, zero, zero, False
        for _ in range(8 - before_gap):
            head_high = (head_high << np.uint64(16)) | (head_low >> np.uint64(48))
            head_low = head_low << np.uint64(16)
        mapped = before_gap == 0 and groups == 3 and low >> np.uint64(32) == np.uint64(0xFFFF)
        return (
            q,
            head_high | high,
            head_low | low,
            mapped or (groups > 1 and before_gap > 0 and first_width == 4 and first_decimal),
        )
    return (q, high, low, widest > 2) if groups == 8 else (0, zero, zero, False)


@part
def ipv6_at(data: np.ndarray, colon: int, lo: int, hi: int) -> tuple[int, int]:
    """(start, end) of the public address whose first colon is at `colon`, or (0, 0). Reads at most 6 bytes
    before and 45 after.
    """
    start = colon
    while start > lo and colon - start < 5 and FLAGS[data[start - 1]] & HEX:
        start -= 1
    if colon - start > 4 or colon + 1 >= hi or (colon == start and data[colon + 1] != 58):
        return 0, 0
    if word_before(data, start, lo) or (start > lo and (data[start - 1] == 58 or data[start - 1] == 46)):
        return 0, 0
    end, high, low, plausible = _parse_ipv6(data, start, hi)
    if end == 0 or not plausible or not ipv6_is_global(high, low) or word_at(data, end, hi):
        return 0, 0
    if end < hi and data[end] == 58 and end + 1 < hi and (is_word(data[end + 1]) or data[end + 1] == 58):
        return 0, 0
    return start, end
