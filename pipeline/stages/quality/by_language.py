"""The thresholds of the quality rules for each language: those of FineWeb-2 (Penedo et al. 2025,
arXiv 2506.20920), from the files `configs/<config>.yml` of its repository (Apache-2.0).

Where a script has no spaces, words are characters here and segments there, so the rules on the length of
words and on n-grams have no value; but groups of 10 characters, about 5 segments, have that of 5 segments.
"""

import math

import numpy as np
import pyarrow as pa

from pipeline.stages.language import known

ENGLISH = ("en", "eng_Latn")  # as py3langid and lid.176 name it, and as GlotLID does
VERSION = "by-language-2"
LEAST_STOP_WORDS = 2  # as in FineWeb-2; a text with fewer is not taken for the language
# Repetition is counted alike in all languages.
_IN_ANY = ("max_top_", "max_dup_", "max_char_dup_ratio")
_OF_ENGLISH = {
    *("min_stop_words", "min_num_sentences"),
    *("max_short_line_ratio", "max_dup_para_frac", "max_dup_para_char_frac"),
}


def depends(rule: str) -> bool:
    """Whether languages have thresholds of their own for a rule, or none."""
    return rule in _OF_ENGLISH or any(rule in language.thresholds for language in known().values())


def limits(rule: str, threshold: float, languages: pa.RecordBatch, least_confidence: float) -> np.ndarray:
    """float64[documents]: the threshold of a rule for each document, NaN where it is not applied.

    A language's own threshold holds where it is looser than `threshold`, which a profile may have loosened
    for a kind of text. `threshold` is that of English text, and for repetition that of text whose language is
    not known: whose detected one is below `least_confidence` or has too few stop words.
    """
    if not depends(rule):
        return np.full(len(languages), threshold, float)
    thresholds = {name: language.thresholds for name, language in known().items()}
    unknown = threshold if rule.startswith(_IN_ANY) and rule not in _OF_ENGLISH else math.nan
    looser = min if rule.startswith("min_") else max
    of_language = {
        name: looser(values[rule], threshold) if rule in values else math.nan
        for name, values in thresholds.items()
    }
    of_language |= dict.fromkeys(ENGLISH, threshold)
    coded = languages.column("language").dictionary_encode()
    names, document = coded.dictionary.to_pylist(), coded.indices.to_numpy()
    found = np.array([of_language.get(name, unknown) for name in names], float)[document]
    sure = languages.column("language_confidence").to_numpy() >= least_confidence
    sure &= languages.column("language_stop_words").to_numpy() >= LEAST_STOP_WORDS
    sure |= np.array([name in ENGLISH for name in names], np.bool_)[document]
    return np.where(sure, found, unknown)
