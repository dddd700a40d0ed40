"""The user's own patterns: regular expressions of RE2, whose time is linear in the text, with a checksum."""

import re
from collections.abc import Iterator
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, field_validator

from pipeline.store.params import MESSAGE, NAME, ROLE, Params, form


class OwnPattern(Params):
    """A kind of personal data that the recipe describes."""

    name: str = Field(pattern=NAME)
    """The kind's name in counts and spans."""
    regex: str
    """The regular expression, in the syntax of RE2: without lookaround and backreferences. It must not match
    the empty text.
    """
    placeholder: str = Field(
        "",
        pattern=form(
            r"^(\[[A-Za-z][A-Za-z_ -]*\])?$", "letters, spaces, `_` and `-` in brackets, such as `[EMPLOYEE]`"
        ),
    )
    """What is written instead: letters in square brackets. Default: the name, as in `[EMPLOYEE]`."""
    checksum: Literal["luhn"] | None = None
    """With `luhn`, only matches whose check digit is right are replaced (ISO/IEC 7812). When not set, all."""

    @field_validator("regex")
    @classmethod
    def _is_bounded(cls, regex: str) -> str:
        try:
            matches_nothing = pc.match_substring_regex(pa.array([""]), regex)[0].as_py()
        except pa.ArrowInvalid as error:
            raise ValueError(f"{regex!r} is not a regular expression of RE2: {error}") from error
        if matches_nothing:
            raise ValueError(f"{regex!r} matches the empty text: make it require a character")
        return regex

    @property
    def replacement(self) -> bytes:
        return (self.placeholder or f"[{self.name.upper()}]").encode()

    def holds(self, value: str) -> bool:
        """Whether the checksum of the digits of `value` is right."""
        if self.checksum is None:
            return True
        digits = [int(c) for c in value if c.isascii() and c.isdigit()]
        doubled = (sum(divmod(2 * digit, 10)) for digit in digits[-2::-2])
        return bool(digits) and (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def own_spans(
    texts: pa.Array, patterns: tuple[OwnPattern, ...], placeholders: tuple[bytes, ...]
) -> Iterator[tuple[int, int, int, int]]:
    """(row, number of the pattern, start, end) of each value, in bytes of its row.

    What is a placeholder already, and what overlaps a match of an earlier pattern, is none.
    """
    taken: dict[int, bytearray] = {}
    kept = "|".join(f"\\Q{placeholder.decode()}\\E" for placeholder in placeholders)
    for number, pattern in enumerate(patterns):
        regex = f"(?:{kept})|(?:{pattern.regex})"
        rows = pc.indices_nonzero(pc.match_substring_regex(texts, pattern.regex)).to_pylist()
        for row in rows:
            text = texts[row].as_py()
            is_taken = taken.setdefault(row, bytearray(len(text.encode())))
            for start, end, value in _matches(text, regex):
                is_new = value.encode() not in placeholders and not any(is_taken[start:end])
                if is_new and pattern.holds(value):
                    is_taken[start:end] = bytes([1]) * (end - start)
                    yield row, number, start, end


def _matches(text: str, regex: str) -> Iterator[tuple[int, int, str]]:
    """(first byte, byte after the last, match). None is, or touches, a mark or a role of a conversation.

    Arrow replaces all matches but does not say where they are, so each is put between two marks: a
    private-use character that the text lacks.
    """
    mark = next(chr(code) for code in range(0xF0000, 0x10FFFE) if chr(code) not in text)
    position = 0
    parts = re.split(f"({ROLE})", text) if text.startswith(MESSAGE) else [text]
    marked = pc.replace_substring_regex(pa.array(parts, pa.large_string()), regex, f"{mark}\\0{mark}")
    for number, part in enumerate(parts):
        for index, piece in enumerate([part] if number % 2 else marked[number].as_py().split(mark)):
            end = position + len(piece.encode())
            if index % 2:
                yield position, end, piece
            position = end
