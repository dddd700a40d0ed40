"""Which documents quote an evaluation set: exactly those that share its words in a row."""

import io
import json
import random
import re
import unicodedata

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.stages.decontamination import HITS_SCHEMA, NgramParams, contamination, ngrams, prepared, shared
from tests.corpora import CORPORA, needs_corpora
from tests.pipeline.stages.planted import planted

QUESTION = "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May."


def column(texts: list[str]) -> pa.Array:
    return pa.array(texts, pa.large_string())


def found(
    texts: list[str],
    sets: dict[str, list[str]],
    params: NgramParams = NgramParams(),  # noqa: B008 - frozen
    stock_phrase: int = 4,
) -> list[dict]:
    index = prepared(ngrams([(number, column(held)) for number, held in enumerate(sets.values())], params))
    documents = pa.record_batch({"id": [str(i) for i in range(len(texts))], "text": column(texts)})
    rows = max(3, len(texts) // 10)
    batches = [documents.slice(start, rows) for start in range(0, len(texts), rows)]
    part = [shared(batch, index) for batch in batches]
    return contamination(part, index, list(sets), stock_phrase).to_pylist()


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


MARKUP = (
    *(
        "{}&nbsp;",
        "&ldquo;{}&#8221; ",
        "<b>{}</b> ",
        "<br/>{}\n",
        "<a href='/x?y=z'>{}</a> ",
        "_{}_ ",
        "__{}__ ",
    ),
    *('<p class="a b" id=c>{}</p>', '<w:t xml:space="preserve">{} </w:t>', "**{}** ", "> {}\n", "''{}'' "),
    *("[{}](https://a.example/b_c) ", "{}[12] ", "{}[1][22] ", "[[Some page|{}]] ", "\u200b{} "),
    *(r"\emph{{{}}} ", r"{}\n", r"\"{}\" "),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from(["{} ", *MARKUP]), min_size=1, max_size=9), st.booleans())
def test_markup_between_words_hides_no_quote(kinds, of_the_set):
    """Neither in a document nor in the evaluation text."""
    marked = "".join(kinds[n % len(kinds)].format(word) for n, word in enumerate(QUESTION.split()))
    text, held = (QUESTION, marked) if of_the_set else (marked, QUESTION)
    (hit,) = found([text], {"gsm8k": [held]})
    assert hit["hits"] == len(QUESTION.split()) - 13 + 1 and hit["quote"]


def test_what_stands_between_signs_of_order_is_no_tag():
    assert len(found([f"Where a <{QUESTION}> b"], {"gsm8k": [QUESTION]})) == 1


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


def test_a_stock_phrase_is_told_apart_from_quotes_of_what_surrounds_it():
    def year(number: int, day: str) -> str:
        return (
            f"Year {number} was a common year starting on {day} (link will display the full calendar) of the "
            f"Julian calendar. In {number} the potters of village {number} moved to the river."
        )

    days = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"]
    evaluation = [QUESTION, *(year(1000 + n, day) for n, day in enumerate(days))]
    innocent = [year(500 + n, days[n % 5]) for n in range(30)]
    quoting = [f"Asked: {QUESTION}", f"It is said: {year(1003, 'Thursday').lower()}"]
    hits = found([*innocent, *quoting], {"exam": evaluation})
    assert len(hits) == 32
    assert [hit["id"] for hit in hits if hit["quote"]] == ["30", "31"]
    assert hits[-1]["rare"] == 1 and "potters of village 1003" in hits[-1]["ngram"]


@needs_corpora
def test_every_planted_quote_is_found_and_at_most_one_in_a_hundred_other_articles():
    """Evaluation texts are paragraphs of an encyclopedia. Those on years, of which a cut may be nothing but
    template, are not planted.
    """
    compressed = io.BytesIO((CORPORA / "enwiki.jsonl.zst").read_bytes())
    lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(compressed), "utf-8")
    articles = [json.loads(line)["text"] for line in lines]
    quotes_of_any_run = quotes_of_others = 0
    for seed in range(3):
        random.Random(seed).shuffle(articles)
        held, others, hosts = articles[:300], articles[600:1200], articles[1200:]
        paragraphs = [one for one in map(paragraph, held) if one]
        own = [one for one in paragraphs if "full calendar" not in one]
        quotes = planted(own, hosts[: len(own)])
        hits = found([*others, *(one.document for one in quotes)], {"wiki": paragraphs})
        ids = {int(hit["id"]) for hit in hits if hit["quote"]}
        assert [one.kind for number, one in enumerate(quotes, start=len(others)) if number not in ids] == []
        quotes_of_others += sum(number < len(others) for number in ids)
        quotes_of_any_run += sum(int(hit["id"]) < len(others) for hit in hits)
    assert quotes_of_others <= 3 * 600 / 100 and quotes_of_any_run > 3 * 600 / 10


def paragraph(text: str) -> str | None:
    """One of those of twenty words or more, the same at every call."""
    long = [one for one in text.split("\n") if len(re.findall(r"\w+", one)) >= 20]
    return random.Random(text).choice(long) if long else None


WITHOUT_SPACES = "\u0e01-\u0e30\u0e32\u0e33\u0e40-\u0e46\u3041-\u30ff\u4e00-\u9fff"
words = st.builds(
    str.join,
    st.sampled_from([" ", ""]),
    st.lists(
        st.sampled_from(
            ["a", "b", "É", "e\u0301", "ß", "ss", "3", "क\u093f", "日本", "か\u3099", "ก\u0e47", "ไทย", "中a"]
        ),
        max_size=14,
    ),
)


def words_of(text: str) -> list[str]:
    """A character of a script without spaces begins a word."""
    words = rf"[{WITHOUT_SPACES}][^\s{WITHOUT_SPACES}]*|[^\s{WITHOUT_SPACES}]+"
    return re.findall(words, unicodedata.normalize("NFC", text).casefold())


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


@pytest.mark.parametrize(
    "question",
    [
        "红楼梦第一回甄士隐梦幻识通灵贾雨村风尘怀闺秀。",
        "吾輩は猫である。名前はまだ無い。",
        "ประเทศไทยเป็นประเทศที่ตั้งอยู่ในเอเชียตะวันออกเฉียงใต้",
    ],
)
def test_a_quote_in_a_script_without_spaces_is_found_wherever_it_begins(question: str):
    texts = [f"前{question[1:]}后", f"Question: {question} Answer", f"{question[:9]}一{question[9:11]}"]
    hits = found(texts, {"quiz": [question]})
    assert [hit["id"] for hit in hits] == ["0", "1"]
    assert all(hit["ngram"] in question.casefold() for hit in hits)


def test_no_documents_and_sets_without_a_long_text_find_nothing():
    assert found([], {"a": [QUESTION]}) == []
    assert found([QUESTION, ""], {"a": ["", "too short"]}) == []
    assert HITS_SCHEMA.names == ["id", "set", "ngram", "position", "hits", "rare", "quote"]


@pytest.mark.parametrize("text", ["word " * 200_000, "x" * 2_000_000])
def test_a_long_document_of_one_word_takes_no_longer_than_others(text):
    assert found([text], {"a": [QUESTION]}) == []
