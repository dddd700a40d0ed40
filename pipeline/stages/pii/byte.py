"""ASCII bytes by name, and sets of them. numba compiles all of them as constants."""

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
