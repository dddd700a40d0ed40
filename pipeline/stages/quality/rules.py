"""From signals to verdicts: the thresholds that a document has to meet, and the first one that it misses."""

from enum import StrEnum
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, field_validator, model_validator

from pipeline.stages.language import LANGUAGES
from pipeline.store.params import Params

VERDICTS_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("keep", pa.bool_(), nullable=False),
        pa.field("rule", pa.string()),
    ]
)

Amount = Annotated[int, Field(ge=0)]
Length = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Ratio = Annotated[float, Field(ge=0)]


class QualityRule(StrEnum):
    """Why a document is rejected, in the order in which rules are tried. `max_words` is broken when the
    signal `words` is above that threshold.
    """

    LANGUAGE = "language"
    MIN_WORDS = "min_words"
    MAX_WORDS = "max_words"
    MIN_MEAN_WORD_LENGTH = "min_mean_word_length"
    MAX_MEAN_WORD_LENGTH = "max_mean_word_length"
    MAX_SPECIAL_CHARACTER_SHARE = "max_special_character_share"
    MIN_UNIQUE_WORD_SHARE = "min_unique_word_share"
    MIN_DOC_WORDS = "min_doc_words"
    MAX_DOC_WORDS = "max_doc_words"
    MIN_AVG_WORD_LENGTH = "min_avg_word_length"
    MAX_AVG_WORD_LENGTH = "max_avg_word_length"
    MAX_HASH_WORD_RATIO = "max_hash_word_ratio"
    MAX_ELLIPSIS_WORD_RATIO = "max_ellipsis_word_ratio"
    MAX_BULLET_LINES_RATIO = "max_bullet_lines_ratio"
    MAX_ELLIPSIS_LINES_RATIO = "max_ellipsis_lines_ratio"
    MIN_ALPHA_WORDS_RATIO = "min_alpha_words_ratio"
    MIN_STOP_WORDS = "min_stop_words"
    MAX_DUP_PARA_FRAC = "max_dup_para_frac"
    MAX_DUP_PARA_CHAR_FRAC = "max_dup_para_char_frac"
    MAX_DUP_LINE_FRAC = "max_dup_line_frac"
    MAX_DUP_LINE_CHAR_FRAC = "max_dup_line_char_frac"
    MAX_TOP_2_GRAM_CHAR_FRAC = "max_top_2_gram_char_frac"
    MAX_TOP_3_GRAM_CHAR_FRAC = "max_top_3_gram_char_frac"
    MAX_TOP_4_GRAM_CHAR_FRAC = "max_top_4_gram_char_frac"
    MAX_DUP_5_GRAM_CHAR_FRAC = "max_dup_5_gram_char_frac"
    MAX_DUP_6_GRAM_CHAR_FRAC = "max_dup_6_gram_char_frac"
    MAX_DUP_7_GRAM_CHAR_FRAC = "max_dup_7_gram_char_frac"
    MAX_DUP_8_GRAM_CHAR_FRAC = "max_dup_8_gram_char_frac"
    MAX_DUP_9_GRAM_CHAR_FRAC = "max_dup_9_gram_char_frac"
    MAX_DUP_10_GRAM_CHAR_FRAC = "max_dup_10_gram_char_frac"
    FILTER_LOREM_IPSUM = "filter_lorem_ipsum"
    FILTER_CURLY_BRACKET = "filter_curly_bracket"
    MIN_NUM_SENTENCES = "min_num_sentences"
    MIN_LINE_PUNCT_RATIO = "min_line_punct_ratio"
    MAX_SHORT_LINE_RATIO = "max_short_line_ratio"
    MAX_CHAR_DUP_RATIO = "max_char_dup_ratio"
    MAX_NEW_LINE_RATIO = "max_new_line_ratio"


class QualityParams(Params):
    """A threshold for each rule; None (or False) turns the rule off. The defaults are the `default` profile:
    Gopher quality, repetition, FineWeb.

    `min_x` and `max_x` bound the signal `x` of `measure`, and a document exactly at a threshold passes.
    Values are those of the papers (Rae et al. 2021, table A1; Raffel et al. 2020; Penedo et al. 2024), as
    datatrove 0.10 has them. The rule `language`, off unless `languages` are named, wants one of them,
    detected with at least `min_language_confidence`.
    """

    languages: tuple[str, ...] | None = Field(None, min_length=1)
    min_language_confidence: Share = 0.5
    min_words: Amount | None = 1
    max_words: Amount | None = None
    min_mean_word_length: Length | None = None
    max_mean_word_length: Length | None = None
    max_special_character_share: Share | None = None
    min_unique_word_share: Share | None = None

    min_doc_words: Amount | None = 50
    max_doc_words: Amount | None = 100_000
    min_avg_word_length: Length | None = 3
    max_avg_word_length: Length | None = 10
    max_hash_word_ratio: Ratio | None = 0.1
    max_ellipsis_word_ratio: Ratio | None = 0.1
    max_bullet_lines_ratio: Share | None = 0.9
    max_ellipsis_lines_ratio: Share | None = 0.3
    min_alpha_words_ratio: Share | None = 0.8
    min_stop_words: Annotated[int, Field(ge=0, le=8)] | None = 2

    max_dup_para_frac: Share | None = 0.3
    max_dup_para_char_frac: Share | None = 0.2
    max_dup_line_frac: Share | None = 0.3
    max_dup_line_char_frac: Share | None = 0.2
    max_top_2_gram_char_frac: Ratio | None = 0.2
    max_top_3_gram_char_frac: Ratio | None = 0.18
    max_top_4_gram_char_frac: Ratio | None = 0.16
    max_dup_5_gram_char_frac: Share | None = 0.15
    max_dup_6_gram_char_frac: Share | None = 0.14
    max_dup_7_gram_char_frac: Share | None = 0.13
    max_dup_8_gram_char_frac: Share | None = 0.12
    max_dup_9_gram_char_frac: Share | None = 0.11
    max_dup_10_gram_char_frac: Share | None = 0.10
    # occurrences from which the most frequent n-gram is repetition; in datatrove 1
    top_gram_min_count: Annotated[int, Field(ge=1)] = 2

    filter_lorem_ipsum: bool = False
    filter_curly_bracket: bool = False
    min_num_sentences: Amount | None = None

    min_line_punct_ratio: Share | None = 0.12
    max_short_line_ratio: Share | None = 0.67
    max_char_dup_ratio: Share | None = 0.01
    max_new_line_ratio: Ratio | None = 0.3

    @field_validator("languages")
    @classmethod
    def _languages_are_known(cls, languages: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for language in languages or ():
            if language not in LANGUAGES:
                raise ValueError(
                    f"{language!r} is not a language that can be detected; there are "
                    f"{' '.join(sorted(LANGUAGES))}"
                )
        return languages

    @model_validator(mode="after")
    def _bounds_are_ordered(self) -> "QualityParams":
        for signal in ("words", "mean_word_length", "doc_words", "avg_word_length"):
            least, most = getattr(self, f"min_{signal}"), getattr(self, f"max_{signal}")
            if least is not None and most is not None and least > most:
                raise ValueError(
                    f"min_{signal} ({least}) is above max_{signal} ({most}): no document can pass"
                )
        return self


def judge(
    signals: pa.RecordBatch, params: QualityParams, languages: pa.RecordBatch | None = None
) -> pa.RecordBatch:
    """One verdict per row of `measure`'s result, VERDICTS_SCHEMA: `rule` is the first QualityRule that the
    document breaks, null where it is kept.

    `languages` is what `detect` gives for the same documents; it is needed where `params` name languages.
    """
    rules = [*QualityRule, None]
    kept = len(rules) - 1
    first_broken = np.full(signals.num_rows, kept)
    for index, rule in enumerate(QualityRule):
        broken = (
            _broken(signals, rule, params)
            if rule is not QualityRule.LANGUAGE
            else _in_other_languages(languages, params)
        )
        if broken is not None:
            first_broken[broken & (first_broken == kept)] = index
    names = pa.array(rules, pa.string()).take(pa.array(first_broken))
    return pa.record_batch(
        [signals.column("id"), pa.array(first_broken == kept), names], schema=VERDICTS_SCHEMA
    )


def _broken(signals: pa.RecordBatch, rule: QualityRule, params: QualityParams) -> np.ndarray | None:
    """Which documents break the rule; None if it is off."""
    threshold = getattr(params, rule)
    side, _, name = rule.partition("_")
    if threshold is None or threshold is False:
        return None
    values = _column(signals, name)
    if side == "filter":
        return values
    if side == "min":
        return values < threshold
    above = values > threshold
    if name.startswith("top_"):
        above &= _column(signals, name.replace("char_frac", "count")) >= params.top_gram_min_count
    return above


def _in_other_languages(languages: pa.RecordBatch | None, params: QualityParams) -> np.ndarray | None:
    if params.languages is None:
        return None
    if languages is None:
        raise ValueError("languages are to be judged: give the table that `detect` makes of these documents")
    wanted = pc.is_in(
        languages.column("language"), value_set=pa.array(params.languages, pa.string())
    ).to_numpy(zero_copy_only=False)
    return ~wanted | (_column(languages, "language_confidence") < params.min_language_confidence)


def _column(signals: pa.RecordBatch, name: str) -> np.ndarray:
    return signals.column(name).to_numpy(zero_copy_only=False)
