"""Flat tables of Unicode properties for the kernels."""

import unicodedata
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from pipeline.stages.text import CODE_POINTS

WORD, MARK, SPACE, NFC_UNSURE = 1, 2, 4, 8
FOLDED_CODE_POINTS = 0x20000
_ASSIGNED = (range(0x33480), range(0xE0000, 0xE0200))


class Characters(NamedTuple):
    """Properties by code point."""

    classes: np.ndarray  # uint8[0x110000], flags
    folds: np.ndarray  # uint64[0x20000], up to three code points of 21 bits, lowest first; 0 if unchanged


def _flags(character: str) -> int:
    mark = unicodedata.category(character)[0] == "M"
    # Hangul vowels and final consonants are the only non-marks that compose with the character before them.
    unsure = mark or "\u1160" <= character <= "\u11ff" or not unicodedata.is_normalized("NFC", character)
    word = character.isalnum() or character == "_"
    return WORD * word | MARK * mark | SPACE * character.isspace() | NFC_UNSURE * unsure


def _fold(character: str) -> int:
    folded = character.casefold()
    return 0 if folded == character else sum(ord(part) << 21 * place for place, part in enumerate(folded))


@lru_cache(maxsize=1)
def characters() -> Characters:
    """Built once in a process, in about 0.1 s, from the Unicode tables of this Python."""
    classes = np.zeros(CODE_POINTS, np.uint8)
    for block in _ASSIGNED:
        classes[block.start : block.stop] = [_flags(chr(code)) for code in block]
    folds = np.array([_fold(chr(code)) for code in range(FOLDED_CODE_POINTS)], np.uint64)
    return Characters(classes, folds)
