"""The compiled entry: the walk, C4's line rules and the repetition rules for every document of a buffer."""

from collections.abc import Callable
from functools import cache

import numpy as np

from pipeline.stages.compiled import kernel, sources
from pipeline.stages.quality.c4 import C4, Phrases, c4, phrase_tables
from pipeline.stages.quality.repetition import Numbering, Repetition, repetition, stop_word_hashes
from pipeline.stages.quality.unicode import character_classes
from pipeline.stages.quality.walk import Count, Words, walk

Columns = tuple[np.ndarray, np.ndarray, np.ndarray]


def count(data: np.ndarray, offsets: np.ndarray) -> Columns:
    """int64 arrays of documents x Count, x Repetition and x C4. Document i is `data[offsets[i]:offsets[i +
    1]]`.

    Time is linear in the text. Scratch memory is for the longest document: at most 29 bytes for each of its
    bytes (where words are one letter), 8 in prose.
    """
    data, offsets = data.view(), offsets.view()
    # read-only whatever the buffers allow: one type, one compilation
    data.flags.writeable = offsets.flags.writeable = False
    rows, longest = len(offsets) - 1, int(np.diff(offsets).max(initial=0))
    counts, repetitions, lines = (
        np.zeros((rows, len(Count)), np.int64),
        np.zeros((rows, len(Repetition)), np.int64),
        np.zeros((rows, len(C4)), np.int64),
    )
    # Documents use the front of the scratch memory, so memory that none needs is never touched.
    words = Words.empty(longest // 2 + 2)
    # Once the words are numbered, nothing reads their hashes.
    table = Numbering.over(words.hashes)
    _compiled()(
        data,
        offsets,
        character_classes(),
        stop_word_hashes(),
        phrase_tables(),
        words,
        table,
        counts,
        repetitions,
        lines,
    )
    return counts, repetitions, lines


@cache
def _compiled() -> Callable[..., None]:
    """The compiled entry."""
    parts = sources()

    @kernel
    def count_documents(
        data: np.ndarray,
        offsets: np.ndarray,
        classes: np.ndarray,
        stop_words: np.ndarray,
        phrases: Phrases,
        words: Words,
        table: Numbering,
        counts: np.ndarray,
        repetitions: np.ndarray,
        lines: np.ndarray,
    ) -> None:
        _ = parts
        for row in range(offsets.size - 1):
            document = data[offsets[row] : offsets[row + 1]]
            word_count, line_count = walk(document, 0, document.size, classes, words, counts[row])
            c4(document, classes, words, line_count, phrases, lines[row])
            repetition(
                document, 0, document.size, classes, stop_words, words, word_count, table, repetitions[row]
            )

    return count_documents
