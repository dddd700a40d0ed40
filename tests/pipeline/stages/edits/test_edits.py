"""Lines cut out of texts: the right ones, and with what was kept of them the text before, byte for byte."""

import binascii
from collections import defaultdict
from datetime import datetime

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
LOCALES = (
    "ar ar_MA fa he hi bn mr gu ta te kn ml pa or ne si th lo my km am ka hy ru uk be bg sr mk el tr az kk "
    "ky uz mn de fr fr_CA es es_MX es_AR pt_BR pt it nl sv da nb fi et lv lt pl cs sk hu ro hr sl bs sq ca "
    "eu gl is ga cy mt id ms vi fil sw zu af so zh zh_TW ja ko ur ps ckb en en_GB en_IN en_ZA"
)
OTHER_ZEROS = {
    "ar": (0x660,),
    "fa": (0x6F0,),
    "mr": (0x966,),
    "ne": (0x966,),
    "bn": (0x9E6,),
    "my": (0x1040,),
}
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
        *("*** START OF THE PROJECT GUTENBERG EBOOK X ***\n", "*** END OF THE PROJECT GUTENBERG EBOOK X"),
        *("---\n", "+++\n", "title: x\n", "[12.03.24, 18:22:01] Ann: "),
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


LICENSE = "Section 1. General Terms of Use\n\n" * 150
BOOK = "Produced by Jane\n\nCHAPTER I\n\nIt was late.\n\nTHE END\n\n\n"
HEAD = "The Project Gutenberg eBook of Tea\n\nTitle: Tea\n\n"


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("start", "end"),
    [
        (
            "*** START OF THE PROJECT GUTENBERG EBOOK TEA ***\n",
            "*** END OF THE PROJECT GUTENBERG EBOOK TEA ***\n",
        ),
        (
            "*** START OF THIS PROJECT GUTENBERG EBOOK TEA,\nAND BISCUITS ***\n",
            "*** END OF THIS PROJECT GUTENBERG EBOOK TEA\n",
        ),
        ("***START OF THE PROJECT GUTENBERG EBOOK TEA***\n", "***END OF THE PROJECT GUTENBERG EBOOK TEA\n"),
    ],
)
def test_of_a_book_of_project_gutenberg_the_book_is_left(newline: str, start: str, end: str) -> None:
    of_gutenberg = (HEAD + start, end + LICENSE)
    one = BOOK.join(of_gutenberg)
    for text, left in {
        one: BOOK,
        one * 3: BOOK * 3,
        of_gutenberg[0] + BOOK: BOOK,  # pieces of a book, of which each has one mark
        BOOK + of_gutenberg[1]: BOOK,
        f"{BOOK}The mark {start}": f"{BOOK}The mark {start}",
    }.items():
        assert edited(text.replace("\n", newline), "gutenberg") == left.replace("\n", newline)


def test_marks_that_are_further_from_an_end_than_any_license_cut_no_text() -> None:
    start, end = (f"*** {one} OF THE PROJECT GUTENBERG EBOOK TEA ***\n" for one in ("START", "END"))
    long = "A line of a novel.\n" * 3000
    assert edited(f"{long}{start}{BOOK}", "gutenberg") == f"{long}{start}{BOOK}"
    assert edited(f"{BOOK}{end}{long}", "gutenberg") == f"{BOOK}{end}{long}"
    assert edited(f"{start}{long}{start}{BOOK}", "gutenberg") == long + BOOK


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('---\ntitle: "Tea: a history"\ndate: 2020-13-45\ntags:\n  - x\n---\n\n# Tea\n', "# Tea\n"),
        ("---\r\ntitle: Tea\r\n---\r\nTea\r\n", "Tea\r\n"),
        ("---\ntags: []\n...\nTea", "Tea"),
        ("---\n---\nTea", "Tea"),
        ("---\n# nothing is set\n---\n", ""),
        ('+++\ntitle = "Tea"\n[params]\nx = 1\n+++\n\nTea', "Tea"),
        *(
            (text, text)
            for text in (
                "---\nIt was late.\n---\nTea",
                "---\ntitle: [x\n---\nTea",
                "+++\nx\n+++\n",
                "\n---\ntitle: x\n---\n",
                "# Tea\n---\nx: y\n---\n",
                "---\ntitle: x\n",
            )
        ),
    ],
)
def test_settings_at_the_beginning_of_a_page_are_cut_and_other_text_between_lines_stays(
    text: str, left: str
) -> None:
    assert edited(text, "front_matter") == left


@pytest.mark.parametrize(
    "when",
    [
        *("[12.03.24, 18:22:01] ", "\u200e[12/03/2024, 6:22:01\u202fPM] ", "[12.3.2022 klo 14.08.18] "),
        *("12/03/24, 18:22 - ", "3/12/24, 6:22 PM - ", "12.03.24, 18:22 - ", "2024-03-12, 6:22 p.m. - "),
        *(
            "12/03/2024 à 18:22 - ",
            "2024-03-12 kl. 18.22 - ",
            "2024/3/12 下午6:22 - ",
            "12/3/24 a las 6:22 p. m. - ",
        ),
        *(
            "2024. 3. 12. 오후 6:22 - ",
            "[\u200f12\u200f/3\u200f/2024, 6:22:01\u202fم] ",
            "[2024/03/12 18:22:01] ",
        ),
    ],
)
def test_the_time_of_a_message_is_cut_and_who_said_what_is_left(when: str) -> None:
    chat = "Ann: Tea at 12/03/24, 18:22 - or [12.03.24, 18:22:01]?\nsecond line\n{}Bob: No [1]\n"
    assert edited(when + chat.format(when), "message_times") == chat.format("")
    both = edited(when + chat.format(when), "message_times", "citations")
    assert both == chat.format("").replace("[1]", "")


@pytest.mark.parametrize("locale", LOCALES.split())
def test_the_time_of_a_message_is_cut_in_the_form_of_any_country(locale: str) -> None:
    dates = pytest.importorskip("babel.dates")
    found = []
    for when in (datetime(2024, 5, 3, 9, 5, 7), datetime(2023, 12, 24, 18, 45)):
        day = dates.format_date(when, "short", locale=locale)
        minute, second = (dates.format_time(when, size, locale=locale) for size in ("short", "medium"))
        comma = "،" if locale[:2] in ("ar", "fa", "ur", "ps") else ","
        for zero in (0x30, *OTHER_ZEROS.get(locale[:2], ())):
            digits = {ord("0") + digit: zero + digit for digit in range(10)}
            written = (f"{day}{comma} {minute} - ", f"{day} {minute} - ", f"[{day}{comma} {second}] ")
            found += [one.translate(digits) for one in written]
    chat = "".join(f"{when}Anna: Tea\n" for when in found)
    assert edited(chat, "message_times") == "Anna: Tea\n" * len(found)


@pytest.mark.parametrize(
    ("exported", "left"),
    [
        ("12/03/24, 18:22 - Ann: <Media omitted>\n12/03/24, 18:23 - Bob: <3\n", "Bob: <3\n"),
        ("[12.03.24, 18:22:01] Ann: \u200eimage omitted\n[12.03.24, 18:22:02] Ann: Hi\n", "Ann: Hi\n"),
        ("[1/12/2024 3:04 PM] ann\nHi\n\n[12-Jan-24 03:05 PM] bob#1\nHey\n", "ann\nHi\n\nbob#1\nHey\n"),
        (
            "--------------- 2024년 3월 1일 금요일 ---------------\n[홍길동] [오후 3:04] 안녕 [오후]\n"
            "[Ann] [3:04 PM] Hi\n[Ann] [3:04 PM] Photo\n[홍길동] [오후 3:05] 이모티콘\n",
            "[홍길동] 안녕 [오후]\n[Ann] Hi\n",
        ),
        (
            "2024년 3월 1일 오후 3:04\n2024년 3월 1일 오후 3:04, 홍길동 : 안녕\n"
            "2024. 3. 1. 오후 3:04, Ann : 사진 2장\n"
            "March 1, 2024 at 3:04 PM, Ann : Hi\nMar 1, 2024, 3:04 PM, Ann : Photo\n",
            "홍길동 : 안녕\nAnn : Hi\n",
        ),
        (
            "[LINE] Chat history with Ann\n2024/03/01(Fri)\n18:22\tAnn\tHi\n"
            "午後6:23\tBob\t[スタンプ]\n6:24PM\tBob\tHey\n",
            "[LINE] Chat history with Ann\n2024/03/01(Fri)\nAnn\tHi\nBob\tHey\n",
        ),
        (
            "Mar 01, 2024  6:22:01 PM (Read by you after 5 minutes)\nMe\nHi\n\n"
            "Mar 01, 2024 11:22:01 PM\nAnn\nHey\n",
            "Me\nHi\n\nAnn\nHey\n",
        ),
        (
            "--- Log opened Fri Mar 01 18:22:01 2024\n18:22 <@ann> Hi\n"
            "18:23 -!- bob [b@c] has joined #d\n18:24  * bob waves\n",
            "<@ann> Hi\n * bob waves\n",
        ),
        (
            "2024-03-01 18:22:01\t@ann\tHi\n2024-03-01 18:22:02\t-->\tbob (b@c) has joined #d\n"
            "2024-03-01 18:22:03\t *\tbob waves\n2024-03-01 18:22:04\t--\tNotice(x): hi\n",
            "@ann\tHi\n *\tbob waves\n",
        ),
        (
            "[18:22:01] <ann> Hi\n[18:22:02] *** Joins: bob (b@c)\n[18:22:03] * bob waves\n",
            "<ann> Hi\n* bob waves\n",
        ),
        ("18:22:01\t From  Ann to  Everyone:\n\tHi\n", "Ann to  Everyone:\n\tHi\n"),
    ],
    ids=[
        "whatsapp",
        "iphone",
        "discord",
        "kakao",
        "kakao phone",
        "line",
        "imessage",
        "irssi",
        "weechat",
        "mirc",
        "zoom",
    ],
)
def test_times_of_other_programs_and_lines_without_a_text_are_cut(exported: str, left: str) -> None:
    assert edited(exported, "message_times") == left
    assert edited(exported.rstrip("\n"), "message_times").rstrip("\n") == left.rstrip("\n")


@pytest.mark.parametrize(
    "text",
    [
        "18:22 The train leaves.\n18:23 - 18:40 Tea\n[18:22] Doors\n18:22 * Tea\n18:24\tonly\n",
        "Mar 01, 2024\nMarch 1, 2024, the storm hit: rain.\nOn March 1, 2024 at 3:04 PM, Ann : so\n",
        "손님이 들어왔습니다.\n이모티콘\nPhoto\n[Sticker]\n",
        "[INFO] [10:04:05] started\n[10:04:05] [main/INFO]: up\n10:04:05.123 main ready\n",
        "--------------- 2024 ----\n--- Log in\n<ann> x\n* y\n",
        "HAMLET: 1:2 <aside>\n| 18:22 | Ann |\n- [x] 12/03/24 done\nx = a[12:03] - b\n",
    ],
    ids=["times", "dates", "words", "logs", "marks", "markup"],
)
def test_ordinary_text_with_times_in_it_stays(text: str) -> None:
    assert edited(text, "message_times") == text
