"""ASCII bytes by name, and sets of them. numba compiles all of them as constants."""

import numpy as np

NEWLINE = ord("\n")
LONG_DASH = 0x1F  # what a matcher reads for the dashes that are longer than a hyphen
SPACE = ord(" ")
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
ZERO, NINE = ord("0"), ord("9")
COLON = ord(":")
SEMICOLON = ord(";")
EQUALS = ord("=")
AT = ord("@")
UPPER_A, UPPER_B, UPPER_J, UPPER_Z = ord("A"), ord("B"), ord("J"), ord("Z")
OPENING_SQUARE = ord("[")
BACKSLASH = ord("\\")
CLOSING_SQUARE = ord("]")
UNDERSCORE = ord("_")
A, E, T, U, X, Z = (ord(letter) for letter in "aetuxz")
CASE = ord("a") - ord("A")  # the bit in which the two cases of a letter differ


def byte_set(members: bytes) -> np.ndarray:
    """bool[256], true at each of `members`."""
    table = np.zeros(256, np.bool_)
    table[list(members)] = True
    return table
