"""Lines cut out of texts: the right ones, and with what was kept of them the text before, byte for byte."""

import binascii
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.stages.edits import REPEATED, EditParams, EditRule, Lines, Repeated, counted, edit, restored
from pipeline.store.params import DOCUMENT_SCHEMA

MESSAGE = """From: Jane <jane@example.org>
Subject: Re: tea
 and biscuits
Message-ID: <1@example.org>

In article <2@example.org>, bob@example.org
(Bob) writes:
> Is it
>> served: at four?

It is: at four.
From my side > yours.

--\x20
Jane
Example Ltd
"""
UUENCODED = b"".join(
    [
        b"begin 644 a.bin\n",
        *(binascii.b2a_uu(bytes(range(at, at + 45))) for at in range(3)),
        binascii.b2a_uu(b"bore"),
    ]
).decode()
PIECES = st.sampled_from(
    [
        *MESSAGE.splitlines(keepends=True),
        *(
            UUENCODED,
            "`\nend\n",
            "語の行。\n",
            "\r\n",
            "\n",
            " ",
            "",
            "é[1]",
            "We use cookies.\n",
            "no newline",
        ),
        *("A line that ends [edit] well. [citation needed]\n", "x" * 1100),
    ]
)
TEXTS = st.lists(st.lists(PIECES, max_size=12).map("".join), max_size=6)


def batch(texts: list[str], urls: list[str | None] | None = None) -> pa.RecordBatch:
    columns = {name: [None] * len(texts) for name in DOCUMENT_SCHEMA.names}
    rows = columns | {"id": [f"d{n}" for n in range(len(texts))], "text": texts}
    if urls:
        rows["url"] = urls
    return pa.RecordBatch.from_pydict(rows, schema=DOCUMENT_SCHEMA)


def edited(text: str, *rules: str) -> str:
    return edit(batch([text]), EditParams(rules=rules))[0].column("text")[0].as_py()


@given(TEXTS, st.lists(st.sampled_from(list(EditRule)), unique=True), st.integers(0, 2))
def test_what_is_left_and_what_was_cut_are_together_the_text(
    texts: list[str], rules: list[EditRule], skipped: int
) -> None:
    documents = batch(texts).slice(skipped)  # a slice: its buffers begin elsewhere
    after, cuts = edit(documents, EditParams(rules=rules))
    of_document = defaultdict(list)
    for row in cuts.to_pylist():
        assert row["end"] - row["start"] == len(row["text"])
        of_document[row["id"]].append((row["start"], row["text"]))
    assert after.column("id") == documents.column("id")
    for row in after.to_pylist():
        assert restored(row["text"], of_document[row["id"]]) == texts[int(row["id"][1:])]


def test_of_a_message_what_its_author_wrote_is_left() -> None:
    left = edited(MESSAGE, "mail_headers", "quotes", "signatures")
    assert left == "\nIt is: at four.\nFrom my side > yours.\n\n"


@pytest.mark.parametrize(
    "text",
    [
        "Note: this is\nno message\n\nText.",
        "Subject: only one header\n\nText.",
        "Text.\nFrom: a\nSubject: b\n\n",
        "-- \n" + "a line\n" * 12,
        "MAKE IT SO\n" + "M" + "A" * 60 + "\n",
        "Bob said:\nfine.\n",
    ],
)
def test_what_only_looks_like_mail_stays(text: str) -> None:
    assert edited(text, "mail_headers", "quotes", "signatures", "uuencoded") == text


@pytest.mark.parametrize("end", ["", "`\nend\n", "end\n"])
def test_an_uuencoded_file_goes_and_the_text_around_it_stays(end: str) -> None:
    assert edited(f"Before.\n{UUENCODED}{end}AFTER\n", "uuencoded") == "Before.\nAFTER\n"


def test_citations_go_and_their_sentence_stays() -> None:
    assert edited("Water is wet.[12] See [edit] [a].\n", "citations") == "Water is wet. See  [a].\n"


def test_policy_lines_go() -> None:
    text = "News.\nPlease enable JAVASCRIPT.\nOur Privacy Policy\nCookies are baked.\n"
    assert edited(text, "policy") == "News.\nCookies are baked.\n"


def test_a_line_of_several_documents_goes_from_its_unit_and_site_only() -> None:
    documents = batch(["Home\nA story.\nHome\n", "Home\n"], ["http://a.org/1", None])
    rule = Repeated(min_documents=2)
    params = EditParams(repeated=(rule,))
    lines = Lines.of(documents.column("text"))
    found = counted(documents, lines, rule, 0)
    assert found["documents"].tolist() == [1, 1]  # "Home" once a document, and none without a site
    repeated = np.array([(one, False) for one in found["hash"]], REPEATED)
    after, cuts = edit(documents, params, repeated, np.zeros(len(repeated), np.bool_))
    assert after.column("text").to_pylist() == ["", "Home\n"]
    assert set(cuts.column("rule").to_pylist()) == {"repeated_line"}
