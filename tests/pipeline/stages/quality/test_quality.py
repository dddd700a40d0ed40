"""What users of quality rely on: verdicts with reasons, thresholds without measuring again, bounded time."""

import ast
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from pipeline.stages.quality import (
    PROFILES,
    RULES,
    SIGNALS_SCHEMA,
    VERDICTS_SCHEMA,
    DocumentTooLongError,
    QualityParams,
    judge,
    measure,
    signals,
    with_plain_newlines,
)
from tests.rows import documents

PROSE = (
    "The committee met on the second day of the month to hear what the engineers had found. They reported "
    "that the bridge could be repaired with "
    "little cost, and that most of the work would have to wait until spring. Nobody in the room was "
    "surprised by this. A vote was taken, and its "
    "outcome pleased a narrow majority of those who were present. The mayor thanked everyone for coming and "
    "closed the meeting."
)
AGAIN = "all of this again and once more as it was before "

# A threshold of each rule, a text that breaks it, and one that does not: but for n-grams, one exactly at it.
CASES = {
    "min_words": (2, "one", "one two"),
    "max_words": (2, "one two three", "one two"),
    "min_mean_word_length": (3, "one a", "one two"),
    "max_mean_word_length": (3, "three", "one two"),
    "max_special_character_share": (0.5, "$$a", "$$ab"),
    "min_unique_word_share": (0.5, "one one one", "one one"),
    "min_doc_words": (2, "one ... -- ,", "one two --"),
    "max_doc_words": (2, "one two three", "one -- two"),
    "min_avg_word_length": (3, "a one ........", "one two ."),
    "max_avg_word_length": (3, "three .", "one two ........"),
    "max_hash_word_ratio": (0.5, "#one ##", "#one two"),
    "max_ellipsis_word_ratio": (0.5, "one... two…", "one...... two three four"),
    "max_bullet_lines_ratio": (0.5, "- one\n  • two\nthree", "- one\r\n2 - two"),
    "max_ellipsis_lines_ratio": (0.5, "one...  \ntwo… \nthree", "one...\ntwo.."),
    "min_alpha_words_ratio": (0.5, "one 2 3", "one 2"),
    "min_stop_words": (2, "the THE the And", "the and"),
    "max_dup_para_frac": (0.5, "one\n\none\n\none", "one\n\n\none"),
    "max_dup_para_char_frac": (0.25, "one\n\none", "four\n\n\n\nfour\n123"),
    "max_dup_line_frac": (0.5, "one\none\none", "one\n\none"),
    "max_dup_line_char_frac": (0.4, "one\none", "one1\n\none1"),
    "max_top_2_gram_char_frac": (0.5, "a b a b a b", "a b c d e a b c"),
    "max_top_3_gram_char_frac": (0.5, "a b c a b c a b c", "a b c d e f g h i j a b c"),
    "max_top_4_gram_char_frac": (0.5, "a b c d a b c d", PROSE),
    **{f"max_dup_{n}_gram_char_frac": (0.2, AGAIN * 2, PROSE) for n in range(5, 11)},
    "filter_lorem_ipsum": (True, "There was LOREM Ipsum in this line.", "Lorem ipsum in a title"),
    "filter_curly_bracket": (True, "The function f() { returned one.", "Some javascript { in this line."),
    "min_num_sentences": (
        3,
        "One sentence is here. Two are here... J. is none.\nAnd a title",
        "One is here. Two are here.\nThree are here now.",
    ),
    "min_line_punct_ratio": (0.5, "a line\nanother line\nlast.", "a line\n\nanother."),
    "max_short_line_ratio": (0.5, "one\ntwo", "x" * 31 + "\n\n" + "x" * 30),
    "max_char_dup_ratio": (0.5, "one\none\none", "one\n\none"),
    "max_new_line_ratio": (0.5, "one\ntwo\n", "one\ntwo"),
}


def rules(params: QualityParams, *texts: str) -> list[str | None]:
    return judge(measure(documents(*texts)), params).column("rule").to_pylist()


def test_a_rejected_document_names_the_first_rule_that_it_breaks():
    verdicts = judge(
        measure(documents(PROSE, "Too short.", "12 345 6789 " * 40, PROSE + "\n" + PROSE)),
        PROFILES["default"],
    )
    assert verdicts.schema == VERDICTS_SCHEMA
    assert verdicts.to_pylist() == [
        {"id": "0000000", "keep": True, "rule": None},
        {"id": "0000001", "keep": False, "rule": "min_doc_words"},
        {"id": "0000002", "keep": False, "rule": "min_alpha_words_ratio"},
        {"id": "0000003", "keep": False, "rule": "max_dup_line_frac"},
    ]


def test_prose_passes_every_profile_but_the_one_that_asks_for_longer_texts():
    assert {name: rules(params, PROSE)[0] for name, params in PROFILES.items()} == dict.fromkeys(PROFILES) | {
        "plain": "min_words"
    }


@pytest.mark.parametrize("rule", CASES)
def test_each_rule_alone_rejects_beyond_its_threshold_and_passes_a_document_at_it(rule):
    threshold, broken, met = CASES[rule]
    off = PROFILES["none"].model_dump()
    assert rules(QualityParams(**off), broken, met) == [None, None]
    assert rules(QualityParams(**off | {str(rule): threshold, "top_gram_min_count": 1}), broken, met) == [
        rule,
        None,
    ]


def test_lines_of_white_space_repeat_nothing():
    lines = [f"Line {number} of a text says {number * number}." for number in range(40)]
    signals = measure(documents("\n\n".join(lines), "\n \t\n".join(lines), "\n\u3000\n".join([*lines, ""])))
    assert signals.column("dup_line_frac").to_pylist() == [0, 0, 0]
    assert signals.column("dup_line_char_frac").to_pylist() == [0, 0, 0]


def test_every_rule_has_a_threshold_and_every_threshold_a_rule():
    others = {"top_gram_min_count", "language_model", "languages", "by_language"}
    others |= {"min_language_confidence", "filters"}
    assert (
        set(RULES)
        == CASES.keys() | {"language"}
        == (QualityParams.model_fields.keys() - others) | {"language"}
    )
    assert PROFILES["default"] == QualityParams()


def test_a_phrase_that_occurs_once_is_repetition_only_for_the_profile_that_copies_datatrove():
    once = "Four words, no repetition."
    assert rules(PROFILES["gopher-repetition"], once) == ["max_top_2_gram_char_frac"]
    assert rules(PROFILES["docs"].model_copy(update={"min_doc_words": 1, "min_stop_words": 0}), once) == [
        None
    ]


def test_a_line_ends_like_a_sentence_before_its_citations_and_with_curly_quotes():
    lines = (
        "The result is given here. [12]\nThe author said “it is so.”\nIt is well known.[citation needed]\n"
    )
    assert measure(documents(lines, "The result is given here [12]\nIt goes on and on..."))[
        "num_sentences"
    ].to_pylist() == [3, 0]


def test_lengths_are_in_characters_whatever_the_script():
    measured = measure(documents("жжжж 日本\u3000語文\u2028\U0001d4b3\U0001d4b4")).to_pylist()[0]
    assert (measured["characters"], measured["words"], measured["mean_word_length"]) == (13, 6, 10 / 6)


def test_a_text_has_the_same_signals_with_the_line_ends_of_another_system():
    lines = [
        "A short title",
        "",
        PROSE,
        "",
        "- one of the things",
        "- another of them...",
        "",
        "The end of it is here.",
    ] * 2
    windows, unix = documents("\r\n".join(lines), "no line end"), documents("\n".join(lines), "no line end")
    assert measure(windows) != measure(unix)
    assert measure(with_plain_newlines(windows)) == measure(unix)
    assert with_plain_newlines(unix) is unix


def test_a_line_end_is_not_put_together_from_two_documents():
    batch = documents(
        "some\r\ntext", "ends in a return\r", "\nbegins with a newline", "\r", "\r\n", "a\r\r\nb"
    )
    expected = ["some\ntext", "ends in a return\r", "\nbegins with a newline", "\r", "\n", "a\r\nb"]
    assert with_plain_newlines(batch)["text"].to_pylist() == expected
    assert with_plain_newlines(batch.slice(1, 4))["text"].to_pylist() == expected[1:5]


def test_a_null_or_empty_text_is_a_document_without_words():
    measured = measure(documents(None, "", " \n\t"))
    assert measured["words"].to_pylist() == [0, 0, 0]
    assert judge(measured, PROFILES["fineweb"])["rule"].to_pylist() == ["min_words"] * 3


def test_signals_do_not_depend_on_a_documents_neighbors_or_on_its_column_type():
    texts = [PROSE, "", AGAIN * 3, "é" * 40, "one\none\n\ntwo", PROSE.upper()]
    whole = measure(documents(*texts))
    assert measure(documents("before", *texts, "after").slice(1, 6)).drop_columns("id") == whole.drop_columns(
        "id"
    )
    narrow = pa.record_batch({"id": whole["id"], "text": pa.array(texts, pa.string())})
    assert pa.Table.from_batches(
        [measure(narrow.slice(row, 1)) for row in range(6)]
    ) == pa.Table.from_batches([whole])
    assert measure(documents()).schema == SIGNALS_SCHEMA


def test_thresholds_that_no_document_can_meet_are_refused():
    with pytest.raises(ValidationError, match=r"min_words \(10\) is above max_words \(5\)"):
        QualityParams(min_words=10, max_words=5)
    with pytest.raises(ValidationError, match="min_word_count"):
        QualityParams(min_word_count=3)


def test_a_document_too_long_to_number_is_named(monkeypatch):
    monkeypatch.setattr(signals, "MAX_DOCUMENT_BYTES", 100)
    with pytest.raises(DocumentTooLongError, match=r"row 1 \(id 0000001\)"):
        measure(documents("short", PROSE))


@pytest.mark.parametrize(
    "unit",
    [
        "x",
        "word ",
        "\n",
        "a\n",
        "the cat sat on\n\n",
        ". ",
        "..",
        "[1]",
        "lorem ipsum",
        "use cookies ",
        "a b c d e f g h i j k l m n o p ",
        "é\u2028",
        "\r",
    ],
)
def test_a_megabyte_of_anything_is_measured_in_linear_time(unit):
    measure(documents("warm up"))
    text = unit * (1_000_000 // len(unit.encode()))
    started = time.perf_counter()
    measure(documents(text, text[:1000]))
    assert time.perf_counter() - started < 2  # a quadratic walk would take minutes


def test_text_that_is_not_utf8_is_measured_within_its_bounds():
    data = np.frombuffer(b"ok \xff\xfe \xe2\x80 \xf4\xbf\xbf\xbf \xc3", np.uint8)
    offsets = np.array([0, 5, data.size - 1, data.size], np.int64)
    column = pa.Array.from_buffers(pa.large_string(), 3, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    assert measure(pa.record_batch({"id": ["a", "b", "c"], "text": column})).num_rows == 3


def standard_library_docstrings() -> list[str]:
    folder = Path(find_spec("json").origin).parent.parent
    names = [
        "argparse.py",
        "asyncio/tasks.py",
        "collections/__init__.py",
        "datetime.py",
        "difflib.py",
        "logging/__init__.py",
        "ipaddress.py",
        "random.py",
    ]
    trees = (
        ast.parse((folder / name).read_text("utf-8"))
        for name in [*names, "shutil.py", "statistics.py", "subprocess.py", "threading.py"]
    )
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = (
        ast.get_docstring(node) for tree in trees for node in ast.walk(tree) if isinstance(node, documented)
    )
    return [text for text in found if text]


def test_the_docs_profile_keeps_the_standard_librarys_prose_and_drops_its_stubs():
    texts = standard_library_docstrings()
    keep = np.array(judge(measure(documents(*texts)), PROFILES["docs"])["keep"])
    words = np.array([len(text.split()) for text in texts])
    assert keep[words >= 20].mean() > 0.85
    assert not keep[words < 20].any()


def test_the_docs_profile_rejects_what_is_not_prose():
    numbers = "\n".join(" ".join(str(a * b) for a in range(10, 20)) for b in range(30))
    table = "| id | value |\n|----|-------|\n" + "\n".join(f"| {i} | {i * 7} |" for i in range(40))
    names = " ".join(f"attribute_{i}_of_x" for i in range(60))
    symbols = "the of and " + "$$%% @@ -- ++ == ~~ " * 20
    encoded = "the key of it and " + " ".join(
        "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo" + str(i) for i in range(30)
    )
    junk = [
        numbers,
        table,
        names,
        symbols,
        encoded,
        "Deprecated since version 3.9: use the other one.",
        "buy the cheap pills now " * 30,
        "",
    ]
    assert None not in rules(PROFILES["docs"], *junk)
