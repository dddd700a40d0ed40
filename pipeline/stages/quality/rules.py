"""From signals to verdicts: thresholds, and the first one that a document misses."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, ValidationInfo, field_validator, model_validator

from pipeline.plugins.settings import FilterChoice, check_names
from pipeline.stages.language import LANGUAGES
from pipeline.stages.quality.by_language import limits
from pipeline.stages.quality.repetition import DUPLICATE_SIZES, TOP_SIZES
from pipeline.store.params import LARGEST_AMOUNT, Anchored, required

VERDICTS_SCHEMA = required(id=pa.string(), keep=pa.bool_()).append(pa.field("rule", pa.string()))

Amount = Annotated[int, Field(ge=0, le=LARGEST_AMOUNT)]
Share = Annotated[float, Field(ge=0, le=1)]
Ratio = Annotated[float, Field(ge=0, le=LARGEST_AMOUNT)]

NAMES_IN_USE = ("kept", "exact", "near", "contaminated")  # other words for what became of a document


def _most_frequent(words: int, most: float) -> Any:
    return Field(
        most,
        description=f"Characters in all occurrences of the most frequent group of {words} words, per "
        "character of the document, at most (Gopher repetition).",
    )


def _seen_before(words: int, most: float) -> Any:
    return Field(
        most,
        description=f"Largest share (0 to 1) of characters in groups of {words} words that occurred before "
        "(Gopher repetition).",
    )


class QualityParams(Anchored):
    """A threshold for each rule of Gopher (Rae et al. 2021, section A.1.1 and table A1), C4 (Raffel et al.
    2020) and FineWeb (Penedo et al. 2024), as datatrove 0.10 has them, except that
    lines of white space count as empty; null (or false) turns a rule off.

    The defaults are the profile `default`: Gopher quality, repetition, FineWeb. `min_x` and `max_x` bound the
    signal `x` of `measure`, and a document exactly at a threshold passes. In a script without spaces between
    words, such as Thai or Chinese, each character is a word. Rules about the length of words, and about
    groups of fewer than 10 words, are not applied to documents that are mostly in such scripts.
    """

    language_model: str | None = Field(None, min_length=1)
    """Path of a fastText model that detects languages, such as lid.176.bin, GlotLID or OpenLID, `.bin` or
    `.ftz`; py3langid when not set. The fingerprint has its content.
    """
    languages: tuple[str, ...] | None = Field(None, min_length=1)
    """Languages to keep, as ISO 639 codes such as `en`, or as the labels of `language_model` without
    `__label__`, such as `eng_Latn`. A document is kept if its most likely language is one of them. When not
    set, languages are not detected.
    """
    min_language_confidence: Share = 0.5
    """Least probability (0 to 1) of the detected language. Used with `languages` and `by_language`."""
    by_language: bool = False
    """Whether each language has its own stop words and thresholds. The thresholds set here are for English.
    For another language, the value of FineWeb-2 applies if the rule is on and this value is looser. A rule is
    not applied to a language without a value for the rule. To text whose language is uncertain, only the
    rules of repetition are applied.
    """
    min_words: Amount | None = 1
    """Fewest words, split at white space."""
    max_words: Amount | None = None
    """Most words, split at white space."""
    min_mean_word_length: Ratio | None = None
    """Least mean length of a word, in characters."""
    max_mean_word_length: Ratio | None = None
    """Greatest mean length of a word, in characters."""
    max_special_character_share: Share | None = None
    """Largest share (0 to 1) of characters that are neither letters with their marks, digits nor white space.
    """
    min_unique_word_share: Share | None = None
    """Least share (0 to 1) of distinct words among all words; upper and lower case differ."""

    min_doc_words: Amount | None = 50
    """Fewest words, without those of punctuation alone (Gopher quality)."""
    max_doc_words: Amount | None = 100_000
    """Most words, without those of punctuation alone (Gopher quality)."""
    min_avg_word_length: Ratio | None = 3
    """Least mean length of a word in characters, without words of punctuation alone (Gopher quality)."""
    max_avg_word_length: Ratio | None = 10
    """Greatest mean length of a word in characters, without words of punctuation alone (Gopher quality)."""
    max_hash_word_ratio: Ratio | None = 0.1
    """Most `#` characters per word (Gopher quality)."""
    max_ellipsis_word_ratio: Ratio | None = 0.1
    """Most ellipses (`...` or `…`) per word (Gopher quality)."""
    max_bullet_lines_ratio: Share | None = 0.9
    """Largest share (0 to 1) of lines that begin with a bullet (Gopher quality)."""
    max_ellipsis_lines_ratio: Share | None = 0.3
    """Largest share (0 to 1) of lines that end in an ellipsis (Gopher quality)."""
    min_alpha_words_ratio: Share | None = 0.8
    """Least share (0 to 1) of words that contain a letter (Gopher quality)."""
    min_stop_words: Annotated[int, Field(ge=0, le=8)] | None = 2
    """How many of the 8 words the, be, to, of, and, that, have, with must occur at least (Gopher quality).
    Set 0 or null for text that is not English.
    """

    max_dup_para_frac: Share | None = 0.3
    """Largest share (0 to 1) of paragraphs that repeat an earlier one (Gopher repetition)."""
    max_dup_para_char_frac: Share | None = 0.2
    """Largest share (0 to 1) of characters in paragraphs that repeat an earlier one (Gopher repetition)."""
    max_dup_line_frac: Share | None = 0.3
    """Largest share (0 to 1) of lines that repeat an earlier one (Gopher repetition)."""
    max_dup_line_char_frac: Share | None = 0.2
    """Largest share (0 to 1) of characters in lines that repeat an earlier one (Gopher repetition)."""
    max_top_2_gram_char_frac: Ratio | None = _most_frequent(2, 0.2)
    max_top_3_gram_char_frac: Ratio | None = _most_frequent(3, 0.18)
    max_top_4_gram_char_frac: Ratio | None = _most_frequent(4, 0.16)
    max_dup_5_gram_char_frac: Share | None = _seen_before(5, 0.15)
    max_dup_6_gram_char_frac: Share | None = _seen_before(6, 0.14)
    max_dup_7_gram_char_frac: Share | None = _seen_before(7, 0.13)
    max_dup_8_gram_char_frac: Share | None = _seen_before(8, 0.12)
    max_dup_9_gram_char_frac: Share | None = _seen_before(9, 0.11)
    max_dup_10_gram_char_frac: Share | None = _seen_before(10, 0.10)
    top_gram_min_count: Annotated[int, Field(ge=1, le=LARGEST_AMOUNT)] = 2
    """How often the most frequent n-gram must occur before the `max_top_*` rules apply. datatrove applies
    them from 1 on, which rejects short texts for one long word group.
    """

    filter_lorem_ipsum: bool = False
    """Whether to reject documents with `lorem ipsum` in a line that ends like a sentence (C4)."""
    filter_curly_bracket: bool = False
    """Whether to reject documents with a `{` in a line that ends like a sentence (C4). Rejects code."""
    min_num_sentences: Amount | None = None
    """Fewest sentences in the lines that C4 would keep (C4, where it is 5)."""

    min_line_punct_ratio: Share | None = 0.12
    """Least share (0 to 1) of non-blank lines that end in punctuation (FineWeb)."""
    max_short_line_ratio: Share | None = 0.67
    """Largest share (0 to 1) of non-blank lines of at most 30 characters (FineWeb)."""
    max_char_dup_ratio: Share | None = 0.01
    """Largest share (0 to 1) of characters in repeated lines, newlines left out (FineWeb)."""
    max_new_line_ratio: Ratio | None = 0.3
    """Most newlines per word (FineWeb)."""

    filters: tuple[FilterChoice, ...] = ()
    """Filters of your own and fastText classifiers, after the built-in rules: docs/your-own-code.md and
    docs/own-text.md.
    """

    @property
    def detects(self) -> bool:
        """Whether the language of each document is needed."""
        return self.by_language or self.languages is not None

    @property
    def language_file(self) -> Path | None:
        """The path on this machine of `language_model`."""
        return self.located(self.language_model) if self.language_model else None

    @field_validator("filters")
    @classmethod
    def _filters_have_names_of_their_own(cls, filters: tuple[FilterChoice, ...]) -> tuple[FilterChoice, ...]:
        check_names(filters, {*RULES, *NAMES_IN_USE})
        return filters

    @field_validator("languages")
    @classmethod
    def _languages_are_known(
        cls, languages: tuple[str, ...] | None, others: ValidationInfo
    ) -> tuple[str, ...] | None:
        for language in languages or ():
            if language not in LANGUAGES and not others.data.get("language_model"):
                raise ValueError(
                    f"{language!r} is not a language that can be detected; choose from "
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


LANGUAGE = "language"
# Why a document is rejected, in order. `max_words` is broken when the signal `words` is above it.
RULES = (
    LANGUAGE,
    *(
        name
        for name in QualityParams.model_fields
        if name.partition("_")[0] in ("min", "max", "filter") and name != "min_language_confidence"
    ),
)

# What these signals say of words says nothing of the characters of a script without spaces. Groups of 10
# characters are about 5 words, whose threshold holds for them.
_OF_SPACED_WORDS = {
    *("mean_word_length", "avg_word_length"),
    *(f"top_{size}_gram_char_frac" for size in TOP_SIZES),
    *(f"dup_{size}_gram_char_frac" for size in DUPLICATE_SIZES[:-1]),
}
_MOSTLY = 0.5


def judge(
    signals: pa.RecordBatch, params: QualityParams, languages: pa.RecordBatch | None = None
) -> pa.RecordBatch:
    """VERDICTS_SCHEMA for each row of signals: `rule` is the first of RULES that the document breaks, or
    null.

    `languages` is the result of `detect` for the same documents, where `params` name languages.
    """
    rules = [*RULES, None]
    kept = len(rules) - 1
    first_broken = np.full(signals.num_rows, kept)
    for index, rule in enumerate(RULES):
        if rule == LANGUAGE:
            broken = _in_other_languages(languages, params)
        else:
            broken = _broken(signals, rule, params, languages)
        if broken is not None:
            first_broken[broken & (first_broken == kept)] = index
    names = pa.array(rules, pa.string()).take(pa.array(first_broken))
    return pa.record_batch(
        [signals.column("id"), pa.array(first_broken == kept), names], schema=VERDICTS_SCHEMA
    )


def _broken(
    signals: pa.RecordBatch, rule: str, params: QualityParams, languages: pa.RecordBatch | None
) -> np.ndarray | None:
    """bool[documents], true where the rule is broken; None if it is off."""
    threshold = getattr(params, rule)
    side, _, name = rule.partition("_")
    if threshold is None or threshold is False:
        return None
    values = _column(signals, name)
    if side == "filter":
        return values
    if params.by_language and languages is not None:
        threshold = limits(rule, threshold, languages, params.min_language_confidence)
    if rule == "max_dup_10_gram_char_frac":
        unspaced = _is_unspaced(signals)
        threshold = np.where(unspaced, np.maximum(threshold, params.max_dup_5_gram_char_frac or 0), threshold)
    broken = values < threshold if side == "min" else values > threshold
    if name.startswith("top_"):
        broken &= _column(signals, name.replace("char_frac", "count")) >= params.top_gram_min_count
    return broken & ~_is_unspaced(signals) if name in _OF_SPACED_WORDS else broken


def _is_unspaced(signals: pa.RecordBatch) -> np.ndarray:
    """bool[documents], true where most words are characters of scripts without spaces."""
    return _column(signals, "unspaced_words_ratio") > _MOSTLY


def _in_other_languages(languages: pa.RecordBatch | None, params: QualityParams) -> np.ndarray | None:
    if params.languages is None or languages is None:
        return None
    wanted = pc.is_in(
        languages.column("language"), value_set=pa.array(params.languages, pa.string())
    ).to_numpy(zero_copy_only=False)
    return ~wanted | (_column(languages, "language_confidence") < params.min_language_confidence)


def _column(signals: pa.RecordBatch, name: str) -> np.ndarray:
    return signals.column(name).to_numpy(zero_copy_only=False)
