"""Named sets of thresholds. `default` is QualityParams(); the others turn on only the rules in their name."""

from typing import Any

from pipeline.stages.quality.repetition import DUPLICATE_SIZES, TOP_SIZES
from pipeline.stages.quality.rules import LANGUAGE, RULES, QualityParams

_DEFAULT = QualityParams()
_OFF: dict[str, Any] = {
    rule: False if rule.startswith("filter_") else None for rule in RULES if rule != LANGUAGE
}

_GOPHER = (
    "min_doc_words",
    "max_doc_words",
    "min_avg_word_length",
    "max_avg_word_length",
    "max_hash_word_ratio",
    "max_ellipsis_word_ratio",
    "max_bullet_lines_ratio",
    "max_ellipsis_lines_ratio",
    "min_alpha_words_ratio",
    "min_stop_words",
)
_REPETITION = (
    "max_dup_para_frac",
    "max_dup_para_char_frac",
    "max_dup_line_frac",
    "max_dup_line_char_frac",
    *(f"max_top_{n}_gram_char_frac" for n in TOP_SIZES),
    *(f"max_dup_{n}_gram_char_frac" for n in DUPLICATE_SIZES),
)
_FINEWEB = ("min_line_punct_ratio", "max_short_line_ratio", "max_char_dup_ratio", "max_new_line_ratio")


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
    "c4": _only(filter_lorem_ipsum=True, filter_curly_bracket=True, min_num_sentences=5),
    "fineweb": _only("min_words", *_FINEWEB),
    "plain": _only(
        min_words=128,
        max_words=4096,
        min_mean_word_length=3,
        max_mean_word_length=10,
        max_special_character_share=0.3,
        min_unique_word_share=0.2,
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
}
