"""One byte of flags per code point for the quality kernels."""

import re
import unicodedata
from functools import cache

import numpy as np

from pipeline.stages.text import CODE_POINTS, code_points

SPACE = 1  # str.isspace(), or a visible sign between words
BREAK = 2  # str.splitlines() splits here
ALPHA = 4  # str.isalpha()
ALNUM = 8  # str.isalnum(), or a mark on such a character, as the vowels of Hindi and Tamil are
SYMBOL = 16  # punctuation in the sense of the Gopher rules: a word of these alone does not count as a word
TERMINAL = 32  # ends a sentence, in any script
ALONE = 64  # of a script without spaces between words
JOINED = 128  # belongs to such a character if it follows one

BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"

# The sets of datatrove 0.10 (utils/text.py; Apache-2.0), as inclusive ranges of code points, so that verdicts
# can be compared with its filters'.
_TERMINAL_RANGES = (
    "21 2e 3f 589 61d-61f 6d4 700-702 7f9 837 839 83d-83e 964-965 104a-104b 1362 1367-1368 166e 1735-1736 "
    "17d4-17d6 17d9-17da 1803 1809 1944-1945 1aa8-1aab 1b5a-1b5b 1b5e-1b5f 1b7d-1b7e 1c3b-1c3c 1c7e-1c7f "
    "203c-203d 2047-2049 2e2e 2e3c 2e53-2e54 3002 a4ff a60e-a60f a6f3 a6f7 a876-a877 a8ce-a8cf a92f "
    "a9c8-a9c9 aa5d-aa5f aaf0-aaf1 abeb fe52 fe56-fe57 ff01 ff0e ff1f ff61 10a56-10a57 10f55-10f59 "
    "10f86-10f89 11047-11048 110be-110c1 11141-11143 111c5-111c6 111cd 111de-111df 11238-11239 1123b-1123c "
    "112a9 1144b-1144c 115c2-115c3 115c9-115d7 11641-11642 1173c-1173e 11944 11946 11a42-11a43 11a9b-11a9c "
    "11c41-11c42 11ef7-11ef8 11f43-11f44 16a6e-16a6f 16af5 16b37-16b38 16b44 16e98 1bc9f 1da88"
)
_SYMBOL_RANGES = (
    "0-8 b-1f 22-2d 2f 3a-3e 40 5b-60 7b-9f ab b4 bb 2013-2014 2019 201c-201e 2026 2236 "
    "2501 25ba 3001 3008-300d 3010-3011 ff05 ff08-ff09 ff0c ff11 ff1a-ff1b ff5e " + _TERMINAL_RANGES
)
# Of Ethiopic, Ugaritic, Old Persian, Aegean and Phoenician
_SIGNS_BETWEEN_WORDS = "1361 1039f 103d0 10100-10101 1091f"
# Thai, Lao, Tibetan, Myanmar, Khmer, the scripts of the Tai, Balinese, Javanese, Han, kana, bopomofo, Yi and
# Ahom
_ALONE_RANGES = (
    "e01-e4e e81-ede f40-fbc 1000-109f 1780-17d3 1950-19df 1a20-1aad 1b00-1b4c 3005-3007 3041-30ff 3105-312f "
    "31f0-31ff 3400-4dbf 4e00-9fff a000-a4cf a980-a9df a9e0-a9fe aa60-aa7f aa80-aadf f900-faff ff66-ff9d "
    "11700-1174f 1b000-1b16f 20000-3347f"
)
# What stands between the syllables of Tibetan, and what has no width, as between the words of Khmer and Thai
_JOINED_RANGES = "f0b-f0c 200b-200d 2060 feff"
_MARK_RANGES = "300-1ffff e0100-e01ef"  # in which all marks are
LETTER, MARK = ord("L"), ord("M")  # of Unicode's categories


@cache
def character_classes() -> np.ndarray:
    """The flags of every code point, uint8[0x110000], for the Unicode of `unicodedata.unidata_version`."""
    flags = np.zeros(CODE_POINTS, np.uint8)
    characters = np.arange(CODE_POINTS, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
    # `re` has the classes of `str`, and finds their characters in a quarter of the time of asking one by one.
    for run in re.finditer(r"\s+", characters):
        flags[run.start() : run.end()] = SPACE
    for run in re.finditer(r"[^\W_]+", characters):
        flags[run.start() : run.end()] = [
            ALNUM | ALPHA if character.isalpha() else ALNUM for character in run[0]
        ]
    for marks in code_points(_MARK_RANGES):
        flags[marks][_kinds(characters[marks]) == MARK] |= ALNUM
    flags[[ord(character) for character in BREAKS]] |= BREAK
    for ranges, flag in (
        (_TERMINAL_RANGES, TERMINAL),
        (_SYMBOL_RANGES, SYMBOL),
        (_SIGNS_BETWEEN_WORDS, SPACE),
        (_JOINED_RANGES, JOINED),
    ):
        for place in code_points(ranges):
            flags[place] |= flag
    for script in code_points(_ALONE_RANGES):
        of_script, kinds = flags[script], _kinds(characters[script])
        of_script[kinds == LETTER] |= ALONE
        of_script[kinds == MARK] |= JOINED
    flags.setflags(write=False)
    return flags


def _kinds(characters: str) -> np.ndarray:
    """The first letter of the category of each character, uint8."""
    return np.frombuffer("".join(map(unicodedata.category, characters)).encode(), np.uint8)[::2]
