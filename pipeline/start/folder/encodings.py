"""The encoding of a text from before Unicode: the one in which its bytes are words."""

import codecs
import re
import unicodedata
from functools import lru_cache

import pyarrow as pa

from pipeline.stages.language import LANGUAGES, detect

LOOKED_AT = 4_096  # bytes of lines that are not ASCII
# In the order in which they are preferred where several read the same words.
OF_ONE_BYTE = (
    *("cp1252", "cp1250", "iso8859-2", "cp1251", "koi8-u", "cp866", "iso8859-5", "cp1253", "iso8859-7"),
    *("cp1254", "cp1255", "cp1256", "iso8859-6", "cp1257", "cp874", "cp850", "cp852", "mac-roman"),
)
# Each with the ranges of the first bytes of its frequent characters.
OF_SEVERAL_BYTES = {
    "euc_kr": ((0xB0, 0xC8),),
    "euc_jp": ((0xA4, 0xA5), (0xB0, 0xCF)),
    "shift_jis": ((0x82, 0x83), (0x88, 0x97)),
    "big5": ((0xA4, 0xC6),),
    "gb18030": ((0xB0, 0xD7),),
}
_JAPANESE, _LEAST_KANA = ("euc_jp", "shift_jis"), 0.1  # of the characters of a Japanese text
_FEWEST_WORDS = 0.5  # share of the characters
# The languages for which an encoding of Latin letters was made, in place of those of Western Europe.
_CENTRAL = frozenset(("cs", "sk", "pl", "hu", "ro", "sl", "hr", "bs", "sr", "sq"))
_MADE_FOR = {
    **dict.fromkeys(("cp1250", "iso8859-2", "cp852"), _CENTRAL),
    "cp1254": frozenset(("tr", "az")),
    "cp1257": frozenset(("lt", "lv", "ltg", "et")),
}
_OTHERS = LANGUAGES - frozenset[str]().union(*_MADE_FOR.values())
_GAPS = "\u00a0\u2013\u2014\u2026"  # a space, dashes, an ellipsis
_BETWEEN_WORDS = re.compile(f"[\u0000-@\\[-`{{-\u007f{_GAPS}]+")
_EAST_ASIAN = re.compile(r"([\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff61-\uffdc]+)")
_APOSTROPHE = "\u2019"
_WITHIN_WORDS = f"{_APOSTROPHE}\u00ad\u00b7\u200c\u200d"  # and a soft hyphen, a middle dot, joiners
_SHORTEST_WORD = 3  # letters of a word that says something


def legacy_encoding(start: bytes) -> str | None:
    """The encoding in which the beginning of a text has the most words. Where too few letters tell, it is the
    usual one of Western Europe; None if that one has not all of the bytes.

    A word has letters of one script, and no capital letter or sign in its middle. Of encodings that read as
    many words, as those of Turkish and French do, that of English or of the most frequent words of another
    language is taken. About 20 ms.
    """
    looked_at = b"".join(line for line in start.splitlines(True) if not line.isascii())[:LOOKED_AT]
    names = (*OF_ONE_BYTE, *OF_SEVERAL_BYTES)
    texts = {name: codecs.getincrementaldecoder(name)("replace").decode(looked_at) for name in names}
    shares = {name: _share_in_words(text, name) for name, text in texts.items()}
    most = max(shares.values())
    if most < _FEWEST_WORDS:
        return None if "\ufffd" in texts[OF_ONE_BYTE[0]] else OF_ONE_BYTE[0]
    best = [name for name in names if shares[name] == most]
    if best[0] in OF_SEVERAL_BYTES:
        return best[0]
    found = detect(pa.RecordBatch.from_pydict({"id": best, "text": [texts[name] for name in best]}))
    columns = (found.column(name).to_pylist() for name in ("language", "language_stop_words"))
    fitting = {
        name: (language in _MADE_FOR.get(name, _OTHERS), language == "en", words)
        for name, language, words in zip(best, *columns, strict=True)
    }
    return max(best, key=fitting.__getitem__)


def _share_in_words(text: str, encoding: str) -> float:
    """The share of the characters beyond ASCII that are in a word, or between two; 0 where nothing can be
    said.
    """
    good = sum(map(text.count, _GAPS))
    bad = kana = 0
    for run in _BETWEEN_WORDS.split(text):
        parts = [part for part in _EAST_ASIAN.split(run) if part] if not run.isascii() else []
        for part in parts:
            size = sum(not character.isascii() for character in part)
            if not _EAST_ASIAN.match(part):
                verdict = _is_word(part)
                good += size * (verdict is True)
                bad += size * (verdict is False)
            elif size > 1:
                frequent = sum(_is_frequent(character, encoding) for character in part)
                kana += sum("\u3040" <= character <= "\u30ff" for character in part)
                good, bad = good + frequent, bad + size - frequent
            else:
                bad += len(parts) > 1  # within a Latin word
    if encoding in _JAPANESE and kana < _LEAST_KANA * (good + bad):
        return 0.0
    return good / max(1, good + bad)


@lru_cache(maxsize=1 << 14)
def _is_frequent(character: str, encoding: str) -> bool:
    """Whether an East Asian character is a usual one in its encoding."""
    if encoding not in OF_SEVERAL_BYTES or character >= "\uff61":
        return False
    written = character.encode(encoding, "replace")
    return len(written) == 2 and any(low <= written[0] <= high for low, high in OF_SEVERAL_BYTES[encoding])


@lru_cache(maxsize=1 << 14)
def _is_word(run: str) -> bool | None:
    """Whether letters that follow one another are a word; None if they are too few to say."""
    if "\ufffd" in run:
        return False
    start, end = 0, len(run)
    while start < end and _kind(run[start]) == "punctuation":
        start += 1
    while start < end and _kind(run[end - 1]) == "punctuation":
        end -= 1
    word = "".join(character for character in run[start:end] if character not in _WITHIN_WORDS)
    kinds = set(map(_kind, word))
    if kinds == {"LATIN"} and run[start:end].replace(_APOSTROPHE, "").isascii():
        return True  # between quotes and the like
    if len(word) < _SHORTEST_WORD and len(kinds) < 2:
        return None
    if len(kinds) > 1 or "sign" in kinds:
        return False
    if kinds == {"LATIN"} and not any(map(str.isascii, word)):
        return False
    return word[1:] == word[1:].lower() or word == word.upper()


@lru_cache(maxsize=1 << 12)
def _kind(character: str) -> str:
    """The script of a letter or of what is written above it; else `punctuation`, or `sign`, as no text has it
    in a word.
    """
    category = unicodedata.category(character)
    if category[0] in "LM":
        return unicodedata.name(character, "sign").split()[0]
    is_sign = (category[0] in "SNC" and character not in "©®™°£€") or character in "§¶"
    return "sign" if is_sign else "punctuation"
