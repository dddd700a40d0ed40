"""Text in other languages is judged by the thresholds of its language, English as ever."""

import numpy as np
import pyarrow as pa
import pytest

from pipeline.stages.language import LANGUAGES, LANGUAGES_SCHEMA, detect, known
from pipeline.stages.quality import PROFILES, RULES, judge, measure
from pipeline.stages.quality.by_language import depends, limits
from tests.rows import documents

GERMAN = (
    "Die Bibliothek wurde im Jahr 1912 von der Stadt gegründet und ist mit dem Museum verbunden. Sie hat "
    "heute mehr als hunderttausend Bände, die nach dem Krieg aus den Dörfern in die Stadt kamen. Viele der "
    "Bücher sind alt, und das Papier ist von schlechter Güte. Darum arbeitet man seit Jahren daran, sie zu "
    "erhalten, denn als Quelle für die Geschichte des Landes sind sie durch nichts zu ersetzen. "
)
# ruff: noqa: RUF001 - the punctuation of Chinese
CHINESE = (
    "图书馆于一九一二年由该市建立，并与博物馆相连。今天它有十多万册书，这些书是战后从各个村庄运到城里的。"
    "许多书都很旧了，纸张的质量也不好。因此人们多年来一直在努力保存它们，因为作为这个国家历史的资料，它们是"
    "不可替代的。每年有许多学生和老师来到这里，在安静的阅览室里读书、写作和讨论。"
)
ENGLISH = (
    "The library was founded by the city in 1912, and it has been part of the museum since then. It is home "
    "to more than a hundred thousand books that came from the villages after the war, and with them came "
    "the people who read them. Many of the books are old, and the paper is poor, so that they have to be "
    "kept in the dark and at the same temperature all year long. "
)


def rules(*texts: str, **changes: object) -> list[str | None]:
    read = documents(*texts)
    params = PROFILES["gopher"].model_copy(update={"by_language": True, **changes})
    return judge(measure(read), params, detect(read)).column("rule").to_pylist()


def test_good_text_of_any_language_is_kept() -> None:
    assert rules(GERMAN, CHINESE, ENGLISH) == [None, None, None]
    assert rules(GERMAN, CHINESE, ENGLISH, by_language=False) == ["min_stop_words", "min_stop_words", None]


# Article 1 of the Universal Declaration of Human Rights, in scripts that write vowels as marks.
WITH_MARKS = {
    "Hindi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है। उन्हें बुद्धि और "
    "अन्तरात्मा की देन प्राप्त है और परस्पर उन्हें भाईचारे के भाव से बर्ताव करना चाहिए।",
    "Bengali": "সমস্ত মানুষ স্বাধীনভাবে সমান মর্যাদা এবং অধিকার নিয়ে জন্মগ্রহণ করে। তাঁদের বিবেক এবং বুদ্ধি আছে; সুতরাং "
    "সকলেরই একে অপরের প্রতি ভ্রাতৃত্বসুলভ মনোভাব নিয়ে আচরণ করা উচিত।",
    "Tamil": "மனிதப் பிறிவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்; அவர்கள் மதிப்பிலும், உரிமைகளிலும் சமமானவர்கள், "
    "அவர்கள் நியாயத்தையும் மனச்சாட்சியையும் இயற்பண்பாகப் பெற்றவர்கள். அவர்கள் ஒருவருடனொருவர் சகோதர உணர்வுப் "
    "பாங்கில் நடந்துகொள்ளல் வேண்டும்.",
}


@pytest.mark.parametrize("language", WITH_MARKS)
def test_marks_on_letters_are_not_taken_for_special_characters(language: str) -> None:
    read = documents(WITH_MARKS[language])
    params = PROFILES["docs"].model_copy(update={"by_language": True})
    assert judge(measure(read), params, detect(read)).column("rule").to_pylist() == [None]


def test_english_is_judged_by_the_recipe() -> None:
    assert rules(ENGLISH, max_avg_word_length=3.0) == ["max_avg_word_length"]
    assert rules(" ".join(["library"] * 60) + ".", ENGLISH)[1] is None


def test_a_threshold_is_that_of_the_language() -> None:
    assert known()["de"].thresholds["max_avg_word_length"] == 15
    assert rules(GERMAN.replace(" ", ""), " ".join(GERMAN.split()))[1] is None
    assert rules(GERMAN + "Donaudampfschifffahrtsgesellschaftskapitän" * 40) == ["max_avg_word_length"]


def test_a_looser_threshold_of_the_profile_holds_in_any_language() -> None:
    german = detect(documents(GERMAN))
    assert limits("max_avg_word_length", 20, german, 0.5).tolist() == [20]
    assert limits("max_avg_word_length", 10, german, 0.5).tolist() == [15]
    own = known()["de"].thresholds["min_alpha_words_ratio"]
    assert limits("min_alpha_words_ratio", 0.99, german, 0.5).tolist() == [own]
    assert limits("min_alpha_words_ratio", 0.01, german, 0.5).tolist() == [0.01]


def test_text_whose_language_is_not_sure_is_judged_by_what_holds_in_any() -> None:
    languages = pa.record_batch(
        {
            "id": ["a", "b", "c"],
            "language": ["de", "de", "und"],
            "language_confidence": [0.4, 0.9, 0.9],
            "language_stop_words": [9, 1, 0],
        },
        schema=LANGUAGES_SCHEMA,
    )
    for rule in ("min_stop_words", "max_avg_word_length", "min_line_punct_ratio"):
        assert np.isnan(limits(rule, 2, languages, 0.5)).all()
    assert limits("max_dup_5_gram_char_frac", 0.15, languages, 0.5).tolist() == [0.15] * 3
    assert limits("min_doc_words", 50, languages, 0.5).tolist() == [50] * 3


@pytest.mark.parametrize("name", sorted(name for name in known() if "_" not in name))
def test_each_language_can_be_detected_and_sets_rules_that_exist(name: str) -> None:
    assert name in LANGUAGES
    assert set(known()[name].thresholds) <= set(RULES)
    assert len(known()[name].stop_words) >= 2


def test_only_rules_with_values_of_their_own_depend_on_the_language() -> None:
    assert depends("max_avg_word_length") and depends("min_stop_words")
    assert not depends("min_doc_words") and not depends("max_hash_word_ratio")
