"""The optional language filter: what it detects, what it rejects, and what it says of unknown codes."""

import pytest
from pydantic import ValidationError

from pipeline.stages.language import LANGUAGES, LANGUAGES_SCHEMA, _identifier, detect
from pipeline.stages.quality import PROFILES, QualityParams, judge, measure
from tests.rows import documents

SENTENCES = {
    "en": "The committee met on the second day of the month to hear what the engineers had found out about "
    "the old bridge.",
    "de": "Der Ausschuss traf sich am zweiten Tag des Monats, um zu hören, was die Ingenieure über die alte "
    "Brücke herausgefunden hatten.",
    "fr": "Le comité s'est réuni le deuxième jour du mois pour entendre ce que les ingénieurs avaient "
    "découvert au sujet du vieux pont.",
    "es": "El comité se reunió el segundo día del mes para escuchar lo que los ingenieros habían descubierto "
    "sobre el viejo puente.",
    "it": "Il comitato si è riunito il secondo giorno del mese per ascoltare ciò che gli ingegneri avevano "
    "scoperto sul vecchio ponte.",
    "pl": "Komisja zebrała się drugiego dnia miesiąca, aby usłyszeć, czego inżynierowie dowiedzieli się o "
    "starym moście.",
    "ru": "Комитет собрался во второй день месяца, чтобы узнать, что инженеры выяснили о старом мосте.",  # noqa: RUF001
    "ja": "委員会は月の二日目に集まり、技術者たちが古い橋について調べたことを聞いた。",
    "ar": "اجتمعت اللجنة في اليوم الثاني من الشهر لتستمع إلى ما توصل إليه المهندسون بشأن الجسر القديم.",
}


def rules(params: QualityParams, *texts: str) -> list[str | None]:
    batch = documents(*texts)
    return judge(measure(batch), params, detect(batch)).column("rule").to_pylist()


def test_sentences_are_told_apart() -> None:
    detected = detect(documents(*SENTENCES.values()))
    assert detected.schema == LANGUAGES_SCHEMA
    assert detected["language"].to_pylist() == list(SENTENCES)
    assert min(detected["language_confidence"].to_pylist()) > 0.5


def test_a_foreign_preface_to_a_long_text_does_not_decide() -> None:
    assert detect(documents(SENTENCES["en"] * 4 + SENTENCES["de"] * 200))["language"].to_pylist() == ["de"]


def test_what_has_no_words_has_no_language() -> None:
    assert set(detect(documents(None, "", "12 345", "\x00\n"))["language"].to_pylist()) <= {"und", "zxx"}
    assert detect(documents()).schema == LANGUAGES_SCHEMA


def test_other_languages_and_doubtful_ones_are_rejected_by_the_rule_language() -> None:
    off = PROFILES["none"]
    texts = (SENTENCES["en"], SENTENCES["de"], SENTENCES["fr"], "12 345")
    assert rules(off, *texts) == [None] * 4
    assert rules(off.model_copy(update={"languages": ("en", "de")}), *texts) == [
        None,
        None,
        "language",
        "language",
    ]
    assert (
        rules(off.model_copy(update={"languages": ("en",), "min_language_confidence": 1.0}), *texts)
        == ["language"] * 4
    )


def test_a_code_that_cannot_be_detected_is_named_before_anything_runs() -> None:
    with pytest.raises(
        ValidationError, match="'english' is not a language that can be detected; choose from ace af"
    ):
        QualityParams(languages=("de", "english"))
    with pytest.raises(ValidationError, match="languages"):
        QualityParams(languages=())


def test_the_codes_are_those_of_the_detector() -> None:
    assert frozenset(_identifier().labels) - {"zxx"} == LANGUAGES
