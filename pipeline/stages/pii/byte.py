"""ASCII bytes by name, sets of bytes, and texts. numba compiles all of them as constants."""

from collections.abc import Sequence

import numpy as np

NEWLINE = ord("\n")
RETURN = ord("\r")
LONG_DASH = 0x1F  # what a matcher reads for the dashes that are longer than a hyphen
RAISED_DOT = 0x1E  # what a matcher reads for dots in the middle of the line, such as bullets
SPACE = ord(" ")
EXCLAMATION = ord("!")
QUOTE = ord('"')
HASH = ord("#")
DOLLAR = ord("$")
PERCENT = ord("%")
AMPERSAND = ord("&")
OPENING_BRACKET = ord("(")
CLOSING_BRACKET = ord(")")
ASTERISK = ord("*")
PLUS = ord("+")
COMMA = ord(",")
HYPHEN = ord("-")
DOT = ord(".")
SLASH = ord("/")
ZERO, FOUR, NINE = (ord(digit) for digit in "049")
COLON = ord(":")
SEMICOLON = ord(";")
LESS, GREATER = ord("<"), ord(">")
EQUALS = ord("=")
AT = ord("@")
UPPER_A, UPPER_B, UPPER_J, UPPER_P, UPPER_Q, UPPER_Z = (ord(letter) for letter in "ABJPQZ")
OPENING_SQUARE = ord("[")
BACKSLASH = ord("\\")
CLOSING_SQUARE = ord("]")
UNDERSCORE = ord("_")
OPENING_CURLY = ord("{")
CLOSING_CURLY = ord("}")
TILDE = ord("~")
A, D, P, S, U, X, Z = (ord(letter) for letter in "adpsuxz")
CASE = ord("a") - ord("A")  # the bit in which the two cases of a letter differ


def byte_set(members: bytes) -> np.ndarray:
    """bool[256], true at each of `members`."""
    table = np.zeros(256, np.bool_)
    table[list(members)] = True
    return table


def text(written: str) -> np.ndarray:
    """The bytes of a text in UTF-8."""
    return np.frombuffer(written.encode(), np.uint8)


def joined(pieces: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of all pieces, and where each begins; one start more, at the end."""
    return np.frombuffer(b"".join(pieces), np.uint8), np.cumsum([0, *map(len, pieces)])
