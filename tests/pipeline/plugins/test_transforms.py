"""What a transform of the user's may return, and what becomes of documents that it fails on."""

from pathlib import Path

import pytest

from pipeline.plugins.settings import TransformParams
from pipeline.plugins.transforms import Transform
from tests.pipeline.plugins.code import batch, write

MODULE = """
    import pyarrow.compute as pc
    from pipeline.plugins import document_transform

    @document_transform
    def lower(document):
        if document.text == "bad":
            raise KeyError(document.text)
        return document.text.lower()

    def lower_batch(documents):
        if "bad" in documents["text"].to_pylist():
            raise KeyError("bad")
        return pc.utf8_lower(documents["text"])

    @document_transform
    def nothing(document):
        return None if document.text == "bad" else document.text.lower()

    @document_transform
    def surrogate(document):
        return chr(0xD800) if document.text == "bad" else document.text.lower()

    def too_few(documents):
        return documents["text"].to_pylist()[1:]

    def one_text(documents):
        return "x"

    def numbers(documents):
        return list(range(len(documents)))

    def raw_bytes(documents):
        return [text.encode() for text in documents["text"].to_pylist()]
"""


@pytest.fixture(autouse=True)
def module(code: Path) -> Path:
    return write(code, "mine.clean", MODULE)


def a_transform(name: str) -> Transform:
    found = Transform(TransformParams(python=f"mine.clean:{name}", version="1"))
    found.check()
    return found


@pytest.mark.parametrize("name", ["lower", "lower_batch", "nothing", "surrogate"])
def test_a_document_that_fails_is_left_out_and_the_others_get_new_texts(name: str) -> None:
    documents, failures = a_transform(name).apply(batch("One", "bad", "TWO"))
    assert documents.column("text").to_pylist() == ["one", "two"]
    assert documents.column("id").to_pylist() == ["d0", "d2"]
    assert [failure.id for failure in failures] == ["d1"]


def test_a_wrong_number_of_texts_is_said(code: Path) -> None:
    documents, failures = a_transform("too_few").apply(batch("One", "Two"))
    assert documents.num_rows == 0
    assert failures[0].message == "the new text has 1 values for 2 documents"


def test_one_text_is_not_taken_for_a_column_of_letters() -> None:
    documents, failures = a_transform("one_text").apply(batch("One"))
    assert documents.num_rows == 0
    assert failures[0].message == "the new text is one text, not a column of large_string"


@pytest.mark.parametrize(("name", "kind"), [("numbers", "int64"), ("raw_bytes", "binary")])
def test_only_texts_replace_texts(name: str, kind: str) -> None:
    documents, failures = a_transform(name).apply(batch("One", "Two"))
    assert documents.num_rows == 0
    said = f"the new text is not a column of large_string: these are of type {kind}, not text"
    assert [failure.message for failure in failures] == [said, said]
