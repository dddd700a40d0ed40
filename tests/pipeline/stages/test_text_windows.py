"""Windows of an evaluation text: all of the text, at words, the same whatever else is read."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pipeline.stages.text_windows import WINDOW_BYTES, drawn, windows

TEXTS = st.lists(st.sampled_from(["word", "é" * 90, "語" * 400, " ", "\n", "x" * 700, "🙂"])).map("".join)


def batch(texts: dict[str, str]) -> pa.RecordBatch:
    return pa.record_batch({"id": list(texts), "source": list(texts), "text": list(texts.values())})


@given(TEXTS)
def test_windows_are_together_the_text_and_none_is_too_long(text: str) -> None:
    found = list(windows(text))
    assert "".join(window for _, window in found) == text
    sizes = [len(window.encode()) for _, window in found]
    assert all(0 < size <= WINDOW_BYTES for size in sizes)
    assert [start for start, _ in found] == [sum(sizes[:number]) for number in range(len(sizes))]


def test_a_window_ends_at_a_word_so_that_no_tokenizer_sees_half_of_one() -> None:
    found = [window for _, window in windows(" ".join(["evaluation"] * 1000))]
    assert all(window.split(" ")[-1] == "evaluation" for window in found)
    assert all(window.startswith(" evaluation") for window in found[1:])


def test_what_is_drawn_is_the_same_from_a_text_that_grew() -> None:
    texts = {f"d{number}": f"{number} " * 3000 for number in range(20)}
    before, counts = drawn([batch(texts)], 20_000)
    assert counts["documents"] == 20 and 20_000 <= counts["scored_bytes"] < 20_000 + WINDOW_BYTES
    assert counts["text_bytes"] == sum(len(text) for text in texts.values())
    grown = [batch({name: text}) for name, text in (texts | {"new": "new " * 900}).items()]
    after = drawn(grown, 20_000)[0].to_pylist()
    assert sum(row in after for row in before.to_pylist()) >= before.num_rows - 4


def test_texts_without_words_have_no_windows() -> None:
    table, counts = drawn([batch({"a": "", "b": " \n" * 900})], 5_000)
    assert table.num_rows == counts["windows"] == counts["scored_bytes"] == 0
