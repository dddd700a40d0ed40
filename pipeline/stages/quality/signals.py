"""Every quality signal of every document, as a table.

Thresholds are applied to the table later, so changing one needs no new measurement.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.stages.compiled import kernel
from pipeline.stages.quality.c4 import C4, c4
from pipeline.stages.quality.repetition import DUPLICATE_SIZES, TOP_SIZES, Numbering, Repetition, repetition
from pipeline.stages.quality.unicode import character_classes
from pipeline.stages.quality.walk import Count, Words, walk
from pipeline.stages.text import UNICODE, utf8_arrays
from pipeline.store.params import required

VERSION = f"quality-7-{UNICODE}"

_RETURN = ord("\r")
MAX_DOCUMENT_BYTES = 2**31 - 1  # n-grams are numbered by 32 bits


class _Counted(NamedTuple):
    """What a kernel counts in each document, int64[documents, columns]."""

    walk: np.ndarray
    repetition: np.ndarray
    c4: np.ndarray


Counted = Count | Repetition | C4
# What each signal is: a count; (a, b), which is a per b; or (a, b, c), which is a per b - c.
_SIGNALS: dict[str, Counted | tuple[Counted, ...]] = {
    "characters": Count.CHARACTERS,
    "words": Count.WORDS,
    "mean_word_length": (Count.WORD_CHARACTERS, Count.WORDS),
    "special_character_share": (Count.SPECIAL_CHARACTERS, Count.CHARACTERS),
    "unique_word_share": (Repetition.UNIQUE_WORDS, Count.WORDS),
    "doc_words": Count.DOC_WORDS,
    "avg_word_length": (Count.DOC_WORD_CHARACTERS, Count.DOC_WORDS),
    "hash_word_ratio": (Count.HASHES, Count.WORDS),
    "ellipsis_word_ratio": (Count.ELLIPSES, Count.WORDS),
    "bullet_lines_ratio": (Count.BULLET_LINES, Count.LINES),
    "ellipsis_lines_ratio": (Count.ELLIPSIS_LINES, Count.LINES),
    "alpha_words_ratio": (Count.ALPHABETIC_WORDS, Count.WORDS),
    "unspaced_words_ratio": (Count.UNSPACED_WORDS, Count.WORDS),
    "stop_words": Repetition.STOP_WORDS,
    "dup_para_frac": (Repetition.DUPLICATE_PARAGRAPHS, Repetition.PARAGRAPHS),
    "dup_para_char_frac": (Repetition.DUPLICATE_PARAGRAPH_CHARACTERS, Count.CHARACTERS),
    "dup_line_frac": (Repetition.DUPLICATE_LINES, Repetition.LINES),
    "dup_line_char_frac": (Repetition.DUPLICATE_LINE_CHARACTERS, Count.CHARACTERS),
    **{f"top_{n}_gram_char_frac": (Repetition[f"TOP_{n}_CHARACTERS"], Count.CHARACTERS) for n in TOP_SIZES},
    **{f"top_{n}_gram_count": Repetition[f"TOP_{n}_COUNT"] for n in TOP_SIZES},
    **{
        f"dup_{n}_gram_char_frac": (Repetition[f"DUPLICATE_{n}_CHARACTERS"], Count.CHARACTERS)
        for n in DUPLICATE_SIZES
    },
    "lorem_ipsum": C4.LOREM_IPSUM,
    "curly_bracket": C4.CURLY_BRACKET,
    "num_sentences": C4.SENTENCES,
    "line_punct_ratio": (Count.PUNCTUATED_LINES, Count.TEXT_LINES),
    "short_line_ratio": (Count.SHORT_LINES, Count.TEXT_LINES),
    "char_dup_ratio": (Repetition.DUPLICATE_LINE_CHARACTERS, Count.CHARACTERS, Count.NEWLINES),
    "new_line_ratio": (Count.NEWLINES, Count.WORDS),
}


def _type(signal: Counted | tuple[Counted, ...]) -> pa.DataType:
    if isinstance(signal, tuple):
        return pa.float64()
    return pa.bool_() if signal is C4.LOREM_IPSUM or signal is C4.CURLY_BRACKET else pa.int64()


SIGNALS_SCHEMA = required(
    id=pa.string(), bytes=pa.int64(), **{name: _type(signal) for name, signal in _SIGNALS.items()}
)


def with_plain_newlines(documents: pa.RecordBatch) -> pa.RecordBatch:
    r"""The documents with `\r\n` as `\n`, so that `measure` does not depend on the system that wrote a text.

    The filters that `measure` agrees with differ here: to them no line of such a text ends in punctuation,
    and its blank lines repeat each other.
    """
    column = documents.column("text")
    if not (utf8_arrays(column)[0] == _RETURN).any():
        return documents
    place = documents.schema.get_field_index("text")
    return documents.set_column(place, "text", pc.replace_substring(column, "\r\n", "\n"))


class DocumentTooLongError(ValueError):
    """A document is longer than the kernels can number its n-grams."""


def measure(documents: pa.RecordBatch) -> pa.RecordBatch:
    r"""All signals of each document: columns `id` and `text` in, SIGNALS_SCHEMA out, row by row.

    Words are those of `str.split()`, which signs such as the Ethiopic ፡ separate, too; but of a script
    without spaces each character is a word, with its marks and what separates syllables or has no width. Of
    all words, these are `unspaced_words_ratio`. Lengths are in characters (code points), and a share of
    nothing is 0.
    Definitions:

    - plain: `bytes` in UTF-8, `words`, `mean_word_length` (characters), `special_character_share` (neither
      alphanumeric, a mark on such a character, nor white space, of all characters), `unique_word_share`
      (distinct words, case kept, of all words).
    - Gopher quality (Rae et al. 2021, section A.1.1): `doc_words` and their mean length leave out words of
      punctuation alone; `#`, and `...` or `…`, per word; shares of lines that begin with a bullet or end in
      an ellipsis; share of words with a letter; how many of the 8 stop words occur.
    - Gopher repetition (table A1), of all characters as datatrove sums them: the most frequent n-gram with
      its spaces, times its count (which may be 1); n-grams seen before, from left to right without overlap or
      spaces; lines and paragraphs seen before. To datatrove, lines of white space repeat each other.
    - C4 (Raffel et al. 2020): sentences of the lines that C4 would keep, and whether lines that end like
      sentences hold `lorem ipsum` or `{`.
    - FineWeb (Penedo et al. 2024): of non-blank lines, the share that end in punctuation and the share of at
      most 30 characters; duplicate lines' characters of all but newlines; newlines per word.

    One kernel, about 100 MB/s on one core, in time linear in the text. The longest document sets the scratch
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
    counted: dict[type, np.ndarray] = {
        columns: np.zeros((len(documents), len(columns)), np.int64) for columns in (Count, Repetition, C4)
    }
    # Documents use the front of the scratch memory, so memory that none needs is never touched.
    words = Words.empty(int(lengths.max(initial=0)) // 2 + 2)
    # Once the words are numbered, nothing reads their hashes.
    table = Numbering.over(words.hashes)
    _count_documents(data, offsets, character_classes(), words, table, _Counted(*counted.values()))
    signals = [_computed(counted, signal) for signal in _SIGNALS.values()]
    ids = documents.column("id").cast(pa.string())
    return pa.record_batch([ids, pa.array(lengths), *signals], schema=SIGNALS_SCHEMA)


def _computed(counted: dict[type, np.ndarray], signal: Counted | tuple[Counted, ...]) -> pa.Array:
    if not isinstance(signal, tuple):
        return pa.array(counted[type(signal)][:, signal]).cast(_type(signal))
    part, whole, *without = (counted[type(one)][:, one] for one in signal)
    whole = whole - sum(without)
    return pa.array(np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0))


@kernel
def _count_documents(
    data: np.ndarray,
    offsets: np.ndarray,
    classes: np.ndarray,
    words: Words,
    table: Numbering,
    counted: _Counted,
) -> None:
    """Walk, C4's line rules and repetition."""
    for row in range(offsets.size - 1):
        document = data[offsets[row] : offsets[row + 1]]
        word_count, line_count = walk(document, classes, words, counted.walk[row])
        c4(document, classes, words, line_count, counted.c4[row])
        repetition(document, classes, words, word_count, table, counted.repetition[row])
