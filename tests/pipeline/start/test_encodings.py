"""Text from before Unicode is read as it was written. `before_unicode.jsonl` has the beginning of the
Universal Declaration of Human Rights in 22 languages, and English lines with a few signs.
"""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.start.folder.encodings import legacy_encoding

_ROWS = [json.loads(line) for line in Path(__file__).with_name("before_unicode.jsonl").open(encoding="utf-8")]
CASES = [(encoding, row["text"]) for row in _ROWS for encoding in row["encodings"]]
NAMES = [f"{row['language']}-{encoding}" for row in _ROWS for encoding in row["encodings"]]


@pytest.mark.parametrize(("encoding", "text"), CASES, ids=NAMES)
def test_a_text_in_a_usual_encoding_of_its_language_is_read_as_it_was_written(
    encoding: str, text: str
) -> None:
    written = text.encode(encoding, "ignore")
    found = legacy_encoding(written)
    assert found and written.decode(found) == written.decode(encoding)


@given(st.sampled_from([case for case in CASES if len(case[1]) > 80]), st.integers(1, 4))
def test_a_text_that_is_cut_within_a_character_is_read_all_the_same(case: tuple[str, str], cut: int) -> None:
    encoding, text = case
    written = text.encode(encoding, "ignore")[:-cut]
    found = legacy_encoding(written)
    assert found and written.decode(found, "ignore") == written.decode(encoding, "ignore")


def test_bytes_that_are_no_text_have_no_encoding() -> None:
    assert legacy_encoding(bytes(range(128, 256)) * 20) is None
