"""Every quality signal of every document, as a table.

Thresholds are applied to the table later, so changing one needs no new measurement.
"""

import unicodedata

import numpy as np
import pyarrow as pa

from pipeline.stages.quality.c4 import C4
from pipeline.stages.quality.kernel import count
from pipeline.stages.quality.repetition import DUPLICATE_SIZES, TOP_SIZES, Repetition
from pipeline.stages.quality.walk import Count
from pipeline.stages.text import utf8_arrays, utf8_column

# Part of the fingerprint. Python's version of Unicode decides what counts as a letter or as white space.
VERSION = f"quality-3-unicode-{unicodedata.unidata_version}"

_RETURN, _NEWLINE = b"\r\n"
MAX_DOCUMENT_BYTES = 2**31 - 1  # n-grams are numbered by 32 bits

SIGNALS_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        *(
            pa.field(name, kind, nullable=False)
            for name, kind in {
                "characters": pa.int64(),
                "words": pa.int64(),
                "mean_word_length": pa.float64(),
                "special_character_share": pa.float64(),
                "unique_word_share": pa.float64(),
                "doc_words": pa.int64(),
                "avg_word_length": pa.float64(),
                "hash_word_ratio": pa.float64(),
                "ellipsis_word_ratio": pa.float64(),
                "bullet_lines_ratio": pa.float64(),
                "ellipsis_lines_ratio": pa.float64(),
                "alpha_words_ratio": pa.float64(),
                "stop_words": pa.int64(),
                "dup_para_frac": pa.float64(),
                "dup_para_char_frac": pa.float64(),
                "dup_line_frac": pa.float64(),
                "dup_line_char_frac": pa.float64(),
                **{f"top_{n}_gram_char_frac": pa.float64() for n in TOP_SIZES},
                **{f"top_{n}_gram_count": pa.int64() for n in TOP_SIZES},
                **{f"dup_{n}_gram_char_frac": pa.float64() for n in DUPLICATE_SIZES},
                "lorem_ipsum": pa.bool_(),
                "curly_bracket": pa.bool_(),
                "num_sentences": pa.int64(),
                "line_punct_ratio": pa.float64(),
                "short_line_ratio": pa.float64(),
                "char_dup_ratio": pa.float64(),
                "new_line_ratio": pa.float64(),
            }.items()
        ),
    ]
)


def with_plain_newlines(documents: pa.RecordBatch) -> pa.RecordBatch:
    r"""The documents with `\r\n` as `\n`, so that `measure` does not depend on the system that wrote a text.

    The filters that `measure` agrees with differ here: to them no line of such a text ends in punctuation,
    and its blank lines repeat each other.
    """
    data, offsets = utf8_arrays(documents.column("text"))
    data, offsets = data[offsets[0] : offsets[-1]], offsets - offsets[0]
    returns = np.flatnonzero(data == _RETURN)
    returns = returns[returns + 1 < len(data)]
    returns = returns[data[returns + 1] == _NEWLINE]
    # the newline is not that of the next document
    returns = returns[~np.isin(returns + 1, offsets)]
    if not len(returns):
        return documents
    stays = np.ones(len(data), np.bool_)
    stays[returns] = False
    text = utf8_column(data[stays], offsets - np.searchsorted(returns, offsets))
    return documents.set_column(documents.schema.get_field_index("text"), "text", text)


class DocumentTooLongError(ValueError):
    """A document is longer than the kernels can number its n-grams."""


def measure(documents: pa.RecordBatch) -> pa.RecordBatch:
    r"""All signals of each document: columns `id` and `text` in, SIGNALS_SCHEMA out, row by row.

    Words are those of `str.split()`, lengths are in characters (code points), and a share of nothing is 0.
    Definitions:

    - plain: `words`, `mean_word_length` (characters), `special_character_share` (neither alphanumeric nor
      white space, of all characters), `unique_word_share` (distinct words, case kept, of all words).
    - Gopher quality (Rae et al. 2021, section A.1.1): `doc_words` and their mean length leave out words of
      punctuation alone; `#`, and `...` or `…`, per word; shares of lines that begin with a bullet or end in
      an ellipsis; share of words with a letter; how many of the 8 stop words occur.
    - Gopher repetition (table A1), of all characters as datatrove sums them: the most frequent n-gram with
      its spaces, times its count (which may be 1); n-grams seen before, from left to right without overlap or
      spaces; lines and paragraphs seen before.
    - C4 (Raffel et al. 2020): sentences of the lines that C4 would keep, and whether lines that end like
      sentences hold `lorem ipsum` or `{`.
    - FineWeb (Penedo et al. 2024): of non-blank lines, the share that end in punctuation and the share of at
      most 30 characters; duplicate lines' characters of all but newlines; newlines per word.

    One kernel, about 115 MB/s on one core, in time linear in the text. The longest document sets the scratch
    memory, 17 bytes for each byte of prose. Line rules count a `\r` before a newline as text, like the
    filters that they come from: see `with_plain_newlines`. Raises DocumentTooLongError for a document of 2
    GiB or more.
    """
    data, offsets = utf8_arrays(documents.column("text"))
    lengths = np.diff(offsets)
    if len(lengths) and lengths.max() > MAX_DOCUMENT_BYTES:
        row = int(lengths.argmax())
        document = documents.column("id")[row].as_py()
        raise DocumentTooLongError(
            f"row {row} (id {document}): text has {lengths[row]:,} bytes, but at most {MAX_DOCUMENT_BYTES:,} "
            "can be measured. Split the document."
        )
    counted, repeated, in_lines = count(data, offsets)
    counts, repeats, lines = (
        dict(zip(Count, counted.T, strict=True)),
        dict(zip(Repetition, repeated.T, strict=True)),
        dict(zip(C4, in_lines.T, strict=True)),
    )
    columns = {
        "id": documents.column("id").cast(pa.string()),
        **_counted(counts),
        **_repeated(counts, repeats),
    }
    columns["lorem_ipsum"] = lines[C4.LOREM_IPSUM] != 0
    columns["curly_bracket"] = lines[C4.CURLY_BRACKET] != 0
    columns["num_sentences"] = lines[C4.SENTENCES]
    return pa.record_batch(
        [pa.array(columns[field.name], field.type) for field in SIGNALS_SCHEMA], schema=SIGNALS_SCHEMA
    )


def _counted(counts: dict[Count, np.ndarray]) -> dict[str, np.ndarray]:
    words, lines, text_lines = counts[Count.WORDS], counts[Count.LINES], counts[Count.TEXT_LINES]
    return {
        "characters": counts[Count.CHARACTERS],
        "words": words,
        "mean_word_length": _ratio(counts[Count.WORD_CHARACTERS], words),
        "special_character_share": _ratio(counts[Count.SPECIAL_CHARACTERS], counts[Count.CHARACTERS]),
        "doc_words": counts[Count.DOC_WORDS],
        "avg_word_length": _ratio(counts[Count.DOC_WORD_CHARACTERS], counts[Count.DOC_WORDS]),
        "hash_word_ratio": _ratio(counts[Count.HASHES], words),
        "ellipsis_word_ratio": _ratio(counts[Count.ELLIPSES], words),
        "bullet_lines_ratio": _ratio(counts[Count.BULLET_LINES], lines),
        "ellipsis_lines_ratio": _ratio(counts[Count.ELLIPSIS_LINES], lines),
        "alpha_words_ratio": _ratio(counts[Count.ALPHABETIC_WORDS], words),
        "line_punct_ratio": _ratio(counts[Count.PUNCTUATED_LINES], text_lines),
        "short_line_ratio": _ratio(counts[Count.SHORT_LINES], text_lines),
        "new_line_ratio": _ratio(counts[Count.NEWLINES], words),
    }


def _repeated(
    counts: dict[Count, np.ndarray], repeats: dict[Repetition, np.ndarray]
) -> dict[str, np.ndarray]:
    characters = counts[Count.CHARACTERS]
    signals = {
        "unique_word_share": _ratio(repeats[Repetition.UNIQUE_WORDS], counts[Count.WORDS]),
        "stop_words": repeats[Repetition.STOP_WORDS],
        "dup_para_frac": _ratio(repeats[Repetition.DUPLICATE_PARAGRAPHS], repeats[Repetition.PARAGRAPHS]),
        "dup_para_char_frac": _ratio(repeats[Repetition.DUPLICATE_PARAGRAPH_CHARACTERS], characters),
        "dup_line_frac": _ratio(repeats[Repetition.DUPLICATE_LINES], repeats[Repetition.LINES]),
        "dup_line_char_frac": _ratio(repeats[Repetition.DUPLICATE_LINE_CHARACTERS], characters),
        "char_dup_ratio": _ratio(
            repeats[Repetition.DUPLICATE_TEXT_LINE_CHARACTERS], characters - counts[Count.NEWLINES]
        ),
    }
    for n in TOP_SIZES:
        signals[f"top_{n}_gram_char_frac"] = _ratio(repeats[Repetition[f"TOP_{n}_CHARACTERS"]], characters)
        signals[f"top_{n}_gram_count"] = repeats[Repetition[f"TOP_{n}_COUNT"]]
    for n in DUPLICATE_SIZES:
        signals[f"dup_{n}_gram_char_frac"] = _ratio(
            repeats[Repetition[f"DUPLICATE_{n}_CHARACTERS"]], characters
        )
    return signals


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)
