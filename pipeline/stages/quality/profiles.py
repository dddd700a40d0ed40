"""Thresholds by name: of a paper, or for a kind of text. docs/performance/data.md has what each rejects."""

from typing import Any

from pipeline.stages.quality.rules import LANGUAGE, RULES, QualityParams

_DEFAULT = QualityParams()
_OFF: dict[str, Any] = {
    rule: False if rule.startswith("filter_") else None for rule in RULES if rule != LANGUAGE
}


def _from_to(first: str, last: str) -> tuple[str, ...]:
    """The rules of one paper, which stand together in RULES."""
    return RULES[RULES.index(first) : RULES.index(last) + 1]


_GOPHER = _from_to("min_doc_words", "min_stop_words")
_REPETITION = _from_to("max_dup_para_frac", "max_dup_10_gram_char_frac")
_FINEWEB = _from_to("min_line_punct_ratio", "max_new_line_ratio")
_C4: dict[str, Any] = {"filter_lorem_ipsum": True, "filter_curly_bracket": True, "min_num_sentences": 5}


def _only(*defaults: str, **others: Any) -> QualityParams:
    """`defaults` at their default thresholds, `others` at the given ones, the rest off."""
    return QualityParams(**{**_OFF, **{name: getattr(_DEFAULT, name) for name in defaults}, **others})


PROFILES: dict[str, QualityParams] = {
    "none": _only(),
    "default": _DEFAULT,
    # datatrove's GopherQualityFilter, GopherRepetitionFilter, C4QualityFilter and FineWebQualityFilter, on
    # str.split() words.
    "gopher": _only(*_GOPHER),
    "gopher-repetition": _only("min_words", *_REPETITION, top_gram_min_count=1),
    "c4": _only(**_C4),
    "fineweb": _only("min_words", *_FINEWEB),
    "plain": _only(
        min_words=128,
        max_words=4096,
        min_mean_word_length=3,
        max_mean_word_length=10,
        max_special_character_share=0.3,
        min_unique_word_share=0.2,
    ),
    # The filters that made FineWeb (Penedo et al. 2024; datatrove, examples/fineweb.py): all of `default`,
    # and those of C4 that do not edit lines; other languages are judged as in FineWeb-2.
    "web": _DEFAULT.model_copy(update={**_C4, "by_language": True}),
    # Gopher's authors applied these rules to the web alone (Rae et al. 2021, section A.1.1). A book may be
    # long, and the speakers of a play are named on up to 35% of its lines (measured on 49 books).
    "books": _only(
        *(rule for rule in (*_GOPHER, *_REPETITION) if rule != "max_doc_words"), max_dup_line_frac=0.5
    ),
    # Docstrings, manuals and READMEs are short, with lists, names and markup. Terminal punctuation and stop
    # words say little about them.
    "docs": _only(
        *_REPETITION,
        "max_bullet_lines_ratio",
        "max_ellipsis_lines_ratio",
        "max_ellipsis_word_ratio",
        "max_doc_words",
        "min_avg_word_length",
        min_doc_words=20,
        max_avg_word_length=14,
        max_hash_word_ratio=0.2,
        min_alpha_words_ratio=0.6,
        min_stop_words=1,
        max_special_character_share=0.3,
        max_dup_para_frac=0.5,
        max_dup_line_frac=0.5,
        top_gram_min_count=3,
        filter_lorem_ipsum=True,
    ),
    # Lines are wrapped, so they end anywhere, and signatures are drawn with stars, dots and repeated lines.
    # What is left finds encoded files, by the length of their words, and tables. Measured on 6,000 messages
    # of 20 newsgroups: it rejects 7.4% of their bytes, mostly encoded files; about .2% are good messages.
    "mail": _only(
        "min_avg_word_length",
        *_from_to("max_top_2_gram_char_frac", "max_top_4_gram_char_frac"),
        min_doc_words=20,
        max_avg_word_length=14,
        min_alpha_words_ratio=0.5,
        max_special_character_share=0.5,
        max_dup_para_frac=0.5,
        max_dup_para_char_frac=0.4,
        max_dup_line_frac=0.5,
        max_dup_line_char_frac=0.4,
        top_gram_min_count=3,
    ),
    # Codex and The Stack find minified and generated files by the length of their lines and by characters
    # that are not alphanumeric (Chen et al. 2021, section 3.1; bigcode-dataset, preprocessing). Lines are not
    # measured here, so words stand for them: of 4,474 files, 99% have a mean below 31 characters.
    "code": _only(
        min_words=10,
        max_mean_word_length=30,
        max_special_character_share=0.5,
        min_unique_word_share=0.05,
        min_alpha_words_ratio=0.25,
    ),
}
