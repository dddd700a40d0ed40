"""Which documents quote an evaluation set: exactly those that share its words in a row."""

import re
import unicodedata

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.stages.decontamination import HITS_SCHEMA, NgramParams, contamination, ngrams, prepared

QUESTION = "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May."


def column(texts: list[str]) -> pa.Array:
    return pa.array(texts, pa.large_string())


def found(texts: list[str], sets: dict[str, list[str]], params: NgramParams = NgramParams()) -> list[dict]:  # noqa: B008 - frozen
    index = prepared(ngrams([(number, column(held)) for number, held in enumerate(sets.values())], params))
    documents = pa.record_batch({"id": [str(i) for i in range(len(texts))], "text": column(texts)})
    return contamination(documents, index, list(sets)).to_pylist()


def test_a_quote_is_named_with_its_set_its_words_and_its_place():
    texts = [
        "Nothing in common with it at all.",
        f"A puzzle: NATALIA sold\nclips{QUESTION[18:]} How many?",
        QUESTION.replace("friends", "sisters"),
    ]
    (hit,) = found(texts, {"other": ["words that nobody writes " * 4], "gsm8k": [QUESTION]})
    assert (hit["id"], hit["set"], hit["position"]) == ("1", "gsm8k", 2)
    assert hit["ngram"] == "natalia sold clips to 48 of her friends in april, and then she"
    assert hit["hits"] == len(QUESTION.split()) - 13 + 1


def test_a_text_in_two_sets_is_a_hit_in_both():
    assert [
        hit["set"] for hit in found([QUESTION], {"a": [QUESTION], "b": ["Something else.", QUESTION]})
    ] == ["a", "b"]


def test_a_short_evaluation_text_counts_as_a_whole_and_a_shorter_one_not_at_all():
    nine, seven = "What is the capital of the republic of Mali", "What is the capital city of Mali"
    texts = [
        f"Asked: {nine}? Bamako.",
        f"Asked: {seven}? Bamako.",
        "What is the capital of the republic of Chad?",
    ]
    assert [(hit["id"], hit["ngram"]) for hit in found(texts, {"quiz": [nine, seven]})] == [
        ("0", nine.lower())
    ]
    assert [hit["id"] for hit in found(texts, {"quiz": [nine, seven]}, NgramParams(min_words=7))] == [
        "0",
        "1",
    ]


words = st.lists(st.sampled_from(["a", "b", "É", "e\u0301", "ß", "ss", "3", "क\u093f"]), max_size=14).map(
    " ".join
)


def words_of(text: str) -> list[str]:
    return re.findall(r"\S+", unicodedata.normalize("NFC", text).casefold())


@settings(deadline=None, max_examples=60)
@given(
    st.lists(words, max_size=4), st.lists(words, min_size=1, max_size=3), st.integers(3, 5), st.integers(1, 5)
)
def test_hits_are_the_ngrams_in_common_and_nothing_else(texts, evaluation, ngram, min_words):
    held = set()
    for text in evaluation:
        split = words_of(text)
        size = min(ngram, len(split))
        if size == ngram or size >= min_words:
            held |= {tuple(split[i : i + size]) for i in range(len(split) - size + 1)}
    expected = {}
    for row, text in enumerate(texts):
        split = words_of(text)
        places = [
            i
            for gram in held
            for i in range(len(split) - len(gram) + 1)
            if tuple(split[i : i + len(gram)]) == gram
        ]
        if places:
            expected[str(row)] = (min(places), len(places))
    hits = found(texts, {"set": evaluation}, NgramParams(ngram=ngram, min_words=min_words))
    assert {hit["id"]: (hit["position"], hit["hits"]) for hit in hits} == expected
    for hit in hits:
        assert words_of(texts[int(hit["id"])])[hit["position"] :][: len(words_of(hit["ngram"]))] == words_of(
            hit["ngram"]
        )


def test_no_documents_and_sets_without_a_long_text_find_nothing():
    assert found([], {"a": [QUESTION]}) == []
    assert found([QUESTION, ""], {"a": ["", "too short"]}) == []
    assert HITS_SCHEMA.names == ["id", "set", "ngram", "position", "hits"]


@pytest.mark.parametrize("text", ["word " * 200_000, "x" * 2_000_000])
def test_a_long_document_of_one_word_takes_no_longer_than_others(text):
    assert found([text], {"a": [QUESTION]}) == []
