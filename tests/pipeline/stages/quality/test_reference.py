"""The compiled signals against the same definitions written in plain Python, on arbitrary Unicode text."""

import re
import sys
import unicodedata
from collections import Counter

from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.stages.quality import SIGNALS_SCHEMA, measure
from pipeline.stages.quality.unicode import ALNUM, ALPHA, SPACE, SYMBOL, TERMINAL, character_classes
from tests.rows import documents

# Raffel et al. 2020, section 2.2, with the numbers of its code; Rae et al. 2021, table A1.
MIN_LINE_WORDS, MAX_WORD_LENGTH = 3, 1000
PHRASES = ["lorem ipsum", "javascript", "terms of use", "privacy policy", "cookie policy"]
PHRASES += ["uses cookies", "use of cookies", "use cookies"]
STOP_WORDS = ["the", "be", "to", "of", "and", "that", "have", "with"]
SYMBOLS, TERMINALS = (
    {chr(code_point) for code_point in (character_classes() & flag).nonzero()[0]}
    for flag in (SYMBOL, TERMINAL)
)
OTHER_TERMINALS = re.escape("".join(sorted(TERMINALS - {"."})))
SENTENCE_END = re.compile(
    rf"(?:(?<!\.)\.(?!\.)|[{OTHER_TERMINALS}])(?:[\"')\]}}\u201d\u2019»]|\[[0-9]*\])*\Z"
)
TRAILING_CITATIONS = re.compile(r"(?:\s*(?:\[[0-9]*\]|\[edit\]|\[citation needed\]))*\s*\Z")
LOWER_ASCII = {code_point: code_point + 32 for code_point in range(ord("A"), ord("Z") + 1)}
UNSPACED = re.compile(
    "CJK|HIRAGANA|KATAKANA|IDEOGRAPHIC|BOPOMOFO|THAI|LAO|TIBETAN|MYANMAR|KHMER|HALFWIDTH KATAKANA|TAI |"
    "NEW TAI LUE|BALINESE|JAVANESE|YI |AHOM|HENTAIGANA"
)
SIGNS = "\u1361\U0001039f\U000103d0\U00010100\U00010101\U0001091f"  # between words
AS_SPACE = str.maketrans(dict.fromkeys(SIGNS, "\u2002"))
JOINED = "\u0f0b\u0f0c\u200b\u200c\u200d\u2060\ufeff"


def is_alone(character: str) -> bool:
    return _kind(character) == "L"


def split(text: str) -> list[str]:
    """The words of str.split(); of a script without spaces each letter, with what belongs to it."""
    found: list[str] = []
    before = " "  # the last character, or what it belongs to
    for character in text:
        belongs = before == "alone" and (_kind(character) == "M" or character in JOINED)
        if character.isspace():
            before = " "
        elif belongs:
            found[-1] += character
        else:
            what = "alone" if is_alone(character) else "other"
            if what == before == "other":
                found[-1] += character
            else:
                found.append(character)
            before = what
    return found


def without_joined(word: str) -> str:
    return "".join(one for one in word if not (is_alone(word[0]) and one in JOINED))


def _kind(character: str) -> str:
    return unicodedata.category(character)[0] if UNSPACED.match(unicodedata.name(character, "")) else ""


def reference(text: str) -> dict[str, object]:
    size, text = len(text.encode()), text.translate(AS_SPACE)
    words = split(text)
    characters = len(text)
    doc_words = [word for word in words if any(character not in SYMBOLS for character in word)]
    lines = text.splitlines()
    signals = {
        "bytes": size,
        "characters": characters,
        "words": len(words),
        "mean_word_length": _ratio(sum(map(len, words)), len(words)),
        "special_character_share": _ratio(
            sum(not _is_alnum_or_mark(character) for word in words for character in without_joined(word)),
            characters,
        ),
        "unique_word_share": _ratio(len(set(words)), len(words)),
        "doc_words": len(doc_words),
        "avg_word_length": _ratio(sum(map(len, doc_words)), len(doc_words)),
        "hash_word_ratio": _ratio(text.count("#"), len(words)),
        "ellipsis_word_ratio": _ratio(text.count("...") + text.count("…"), len(words)),
        "bullet_lines_ratio": _ratio(sum(line.lstrip().startswith(("•", "-")) for line in lines), len(lines)),
        "ellipsis_lines_ratio": _ratio(
            sum(line.rstrip().endswith(("...", "…")) for line in lines), len(lines)
        ),
        "alpha_words_ratio": _ratio(
            sum(any(character.isalpha() for character in word) for word in words), len(words)
        ),
        "stop_words": len(set(words) & set(STOP_WORDS)),
        "unspaced_words_ratio": _ratio(sum(is_alone(word[0]) for word in words), len(words)),
    }
    return signals | _repeated(text, words) | _c4(lines) | _fineweb(text, words)


def _repeated(text: str, words: list[str]) -> dict[str, object]:
    signals = {}
    without_blanks = "\n".join(line if line.strip() else "" for line in text.split("\n"))
    paragraphs, lines = re.split(r"\n{2,}", text.strip()), re.split(r"\n+", without_blanks)
    for name, parts in (("para", paragraphs), ("line", lines)):
        duplicates = _seen_before(parts)
        signals[f"dup_{name}_frac"] = _ratio(len(duplicates), len(parts))
        signals[f"dup_{name}_char_frac"] = _ratio(sum(map(len, duplicates)), len(text))
    for n in (2, 3, 4):
        ngrams = Counter(" ".join(words[i : i + n]) for i in range(len(words) - n + 1))
        top, count = ngrams.most_common(1)[0] if ngrams else ("", 0)
        signals[f"top_{n}_gram_count"] = count
        signals[f"top_{n}_gram_char_frac"] = _ratio(len(top) * count, len(text))
    for n in range(5, 11):
        seen, repeated, i = set(), 0, 0
        while i + n <= len(words):
            ngram = tuple(words[i : i + n])
            if ngram in seen:
                repeated += sum(map(len, ngram))
                i += n
            else:
                seen.add(ngram)
                i += 1
        signals[f"dup_{n}_gram_char_frac"] = _ratio(repeated, len(text))
    return signals


def _c4(lines: list[str]) -> dict[str, object]:
    sentences, lorem_ipsum, curly_bracket = 0, False, False
    for line in map(str.strip, lines):
        words, uncited = split(line), TRAILING_CITATIONS.sub("", line)
        if not uncited.endswith((".", "?", "!", '"', "'", "\u201d", "\u2019")) or uncited.endswith("..."):
            continue
        if len(words) < MIN_LINE_WORDS or max(map(len, words)) > MAX_WORD_LENGTH:
            continue
        lower = line.translate(LOWER_ASCII)
        lorem_ipsum |= PHRASES[0] in lower
        if PHRASES[1] in lower:
            continue
        curly_bracket |= "{" in line
        if not any(phrase in lower for phrase in PHRASES[2:]):
            sentences += _sentences(words[: len(split(uncited))])
    return {"lorem_ipsum": lorem_ipsum, "curly_bracket": curly_bracket, "num_sentences": sentences}


def _sentences(words: list[str]) -> int:
    sentences, ended = 1, False
    for word in words:
        if ended and any(character not in SYMBOLS for character in word):
            sentences, ended = sentences + 1, False
        ended = ended or bool(SENTENCE_END.search(word) and not re.fullmatch(r"[A-Z].", word))
    return sentences


def _fineweb(text: str, words: list[str]) -> dict[str, object]:
    lines = [line for line in text.split("\n") if line.strip()]
    return {
        "line_punct_ratio": _ratio(sum(line[-1] in TERMINALS for line in lines), len(lines)),
        "short_line_ratio": _ratio(sum(len(line) <= 30 for line in lines), len(lines)),
        "char_dup_ratio": _ratio(sum(map(len, _seen_before(lines))), len(text.replace("\n", ""))),
        "new_line_ratio": _ratio(text.count("\n"), len(words)),
    }


def _seen_before(parts: list[str]) -> list[str]:
    return [part for i, part in enumerate(parts) if part in set(parts[:i])]


def _ratio(part: float, whole: int) -> float:
    return part / whole if whole else 0.0


def compiled(texts: list[str]) -> list[dict[str, object]]:
    read = documents(*texts)
    signals = measure(read)
    assert signals.schema == SIGNALS_SCHEMA
    assert signals.column("id") == read.column("id")
    return [{name: value for name, value in row.items() if name != "id"} for row in signals.to_pylist()]


FRAGMENTS = [
    *" \t\n\r\v\f\x00\x1c\x1e\x7f\x85\xa0\u1680\u2028\u2029\u3000.!?…•-#{}[]()",
    *"'\"\u201d\u2019»0\uff11aAJjé\u017f中。؟\U0001d4b3\U0010ffff",
    *(
        "\n\n",
        "\r\n",
        "...",
        "[12]",
        "[edit]",
        "[citation needed]",
        "a b",
        "the",
        "of",
        "and",
        "a\n",
        "Yes. ",
        "No! ",
        "J. ",
        "one two three. ",
    ),
    *("日本語。", "กำลังน้ำ", "ひらがな", "ਅ", "မြန်", "བོད་ཡིག་", "ꆈꌠ", "ꦗꦮ", "ሰላም፡", *JOINED, *SIGNS),
    *("international", "thirteen-year-old ", "#hashtag#", "12345678", "eight...", "eight....sixteen "),
    *("Lorem IPSUM", "JavaScript", "use cookies", "reuses  cookies", "Privacy Policy"),
]
texts = st.one_of(st.lists(st.sampled_from(FRAGMENTS), max_size=60).map("".join), st.text(max_size=200))


@settings(max_examples=150, deadline=None)
@given(st.lists(texts, min_size=1, max_size=4))
@example(["a\n \nb\n \nc\n\t", " \n ", " \na\n  ", "\u3000\n\u3000\n\n"])
@example(["", "\x00. .", "\n", " ", "\n\n\n", "\r\n", "a\r", "a\n\nb\n\na", "\na\na\n"])
@example(
    [
        "a b c d. " * 40,
        "x " * 300,
        "word " * 5 + "x" * 1001 + " end.",
        "x" * 1000 + " two end.",
        "Use cookies, end it.",
    ]
)
@example(
    [
        "here it is. [12]",
        "here it is.[citation needed]  [edit]",
        "[1][2]",
        "he said \u201cso it is.\u201d",
        "one two...[1]",
        "one two.[3] Three four.",
    ]
)
@example([f"{'word' * 5}{sign}{'long' * 5}"[20 - size :] for sign in ".#é\x01\x1c" for size in range(20)])
@example([f"{'x' * size} {'x' * size}\0 {'x' * size} end" for size in range(20)])
@example(
    [
        f"{before}{chr(code)}{before}{chr(code)} and the rest"
        for code in range(128)
        for before in ("a", "Zz901234")
    ]
)
def test_every_signal_equals_its_definition_in_plain_python(batch):
    for text, signals in zip(batch, compiled(batch), strict=True):
        expected = reference(text)
        assert {name: signals[name] for name in expected} == expected
        assert signals.keys() == expected.keys()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from("abc"), max_size=200), st.integers(1, 12))
def test_repeated_phrases_are_counted_as_plain_python_counts_them(words, copies):
    text = " ".join(words * copies)
    assert compiled([text])[0] == reference(text)


def _is_alnum_or_mark(character: str) -> bool:
    return character.isalnum() or unicodedata.category(character).startswith("M")


def _is_space(character: str) -> bool:
    return character.isspace() or character in SIGNS


def test_every_character_has_the_classes_of_str() -> None:
    for flag, belongs in ((SPACE, _is_space), (ALPHA, str.isalpha), (ALNUM, _is_alnum_or_mark)):
        members = (character_classes() & flag).nonzero()[0].tolist()
        assert members == [point for point in range(sys.maxunicode + 1) if belongs(chr(point))]
