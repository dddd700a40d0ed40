"""What a tokenizer is trained on."""

from collections import Counter

import pyarrow as pa
import pytest

from pipeline.stages import bpe
from pipeline.steps.tokens.word_counts import sample


def test_the_sample_holds_the_first_texts_that_fit_and_its_counts_are_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bpe, "MAX_DOCUMENT_CHARS", 4)
    for budget, taken in ((1, []), (6, ["abcd"]), (8, ["abcd", "abcd"])):
        counts: Counter[str] = Counter()
        texts = sample([pa.array(["abcdef", "abcdef"]), pa.array(["ab"])], budget, counts)
        assert [text for column in texts for text in column.to_pylist()] == taken
        assert counts["documents"] == len(taken) and counts["text_bytes"] == len("".join(taken))
