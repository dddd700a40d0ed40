"""ASCII bytes by name, and sets of them. numba compiles all of them as constants."""

import numpy as np

NEWLINE = ord("\n")
SPACE = ord(" ")
HASH = ord("#")
DOLLAR = ord("$")
PERCENT = ord("%")
OPENING_BRACKET = ord("(")
CLOSING_BRACKET = ord(")")
ASTERISK = ord("*")
PLUS = ord("+")
COMMA = ord(",")
HYPHEN = ord("-")
DOT = ord(".")
SLASH = ord("/")
ZERO, NINE = ord("0"), ord("9")
COLON = ord(":")
EQUALS = ord("=")
AT = ord("@")
UPPER_A, UPPER_B, UPPER_J, UPPER_Z = ord("A"), ord("B"), ord("J"), ord("Z")
OPENING_SQUARE = ord("[")
BACKSLASH = ord("\\")
CLOSING_SQUARE = ord("]")
UNDERSCORE = ord("_")
A, E, N, R, T, U, X, Z = (ord(letter) for letter in "aenrtuxz")
CASE = ord("a") - ord("A")  # the bit in which the two cases of a letter differ


def byte_set(members: bytes) -> np.ndarray:
    """bool[256], true at each of `members`."""
    table = np.zeros(256, np.bool_)
    table[list(members)] = True
    return table
