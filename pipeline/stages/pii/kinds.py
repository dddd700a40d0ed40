"""The kinds of personal data, what replaces them, and the schema of the reported spans."""

from enum import StrEnum
from typing import Literal

import pyarrow as pa
from pydantic import field_validator

from pipeline.stages.pii.own_patterns import OwnPattern
from pipeline.store.params import Params, required


class PiiKind(StrEnum):
    EMAIL = "email"
    PHONE = "phone"
    SSN = "ssn"
    IP = "ip"
    CREDIT_CARD = "credit_card"
    IBAN = "iban"
    SECRET = "secret"


class PiiParams(Params):
    """Personal data and secrets that are replaced in text, URL and metadata of every document."""

    kinds: tuple[PiiKind, ...] = tuple(PiiKind)
    """Kinds of personal data to replace. An empty list replaces nothing."""
    replacement: Literal["placeholder", "format"] = "placeholder"
    """What is written instead. `placeholder`: the kind in brackets, such as `[EMAIL]`. `format`: one fixed
    value of the same format, which standards reserve for examples (RFC 2606, RFC 5737, RFC 3849, the 555-01xx
    numbers) or which is never issued.
    """
    ip: Literal["public", "all"] = "public"
    """Which IP addresses are personal. `all`: private and reserved ones too, such as `192.168.1.1`,
    `127.0.0.1` and `fe80::1`.
    """
    patterns: tuple[OwnPattern, ...] = ()
    """Patterns of your own, such as employee numbers. They are replaced before all other kinds, in the order
    of the list.
    """
    allow: tuple[str, ...] = ()
    """Values that stay: an address or number as the text writes it, in any case, such as
    `support@example.org`, or a domain, such as `example.org`, for all e-mail addresses in it and its
    subdomains.
    """

    @field_validator("patterns")
    @classmethod
    def _names_are_free(cls, patterns: tuple[OwnPattern, ...]) -> tuple[OwnPattern, ...]:
        names: list[str] = [*PiiKind]
        for pattern in patterns:
            if pattern.name in names:
                raise ValueError(f"the name {pattern.name!r} is taken: give each pattern a name of its own")
            names.append(pattern.name)
        return patterns


SPANS_SCHEMA = required(id=pa.string(), kind=pa.string(), start=pa.int64(), end=pa.int64())

# Columns of a span inside the stage: row of the document, pattern, first byte, byte after the last.
DOCUMENT, PATTERN, START, END = range(4)

# Patterns that matchers report: one for each kind, two for IP addresses, whose families have different
# formats. The user's patterns have the numbers after these.
EMAIL, PHONE, SSN, IPV4, CREDIT_CARD, IBAN, SECRET, IPV6 = range(8)
ANY_IP = 8  # the index of `ip: all` among the patterns that are wanted

KIND_OF_PATTERN = (*PiiKind, PiiKind.IP)
PLACEHOLDERS = tuple(f"[{kind.upper()}]".encode() for kind in KIND_OF_PATTERN)
EXAMPLES = (
    b"user@example.com",
    b"202-555-0100",
    b"000-00-0000",
    b"192.0.2.1",
    b"0000-0000-0000-0000",
    b"XX00XXXX00000000",
    b"SECRET0000000000",
    b"2001:db8::1",
)
