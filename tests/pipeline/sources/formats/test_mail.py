"""Mail as programs write it: decoded headers and text, and no message takes others with it."""

import mailbox
from email import policy
from email.message import EmailMessage
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.sources.documents import MAX_DOCUMENT_BYTES, Batches
from pipeline.sources.files import FilesConfig
from pipeline.sources.formats.mail import read_mail
from pipeline.sources.formats.rows import RowReader
from tests.pipeline.sources.reading import documents_and_rejects

BODY = "Grüße aus dem Süden,\n\nFrom here we see the sea. " + "It is a long line. " * 20 + "\n\n— José\n"


def message(body: str = BODY, **headers: str) -> EmailMessage:
    made = EmailMessage(policy=policy.SMTP)
    made["Received"] = "from mail.example.org by example.com"
    made["From"], made["To"] = "José Ñ <jose@example.org>", "list@example.org"
    made["Subject"] = "Über die Reise, " + "die sehr lang war " * 8
    for name, value in headers.items():
        made[name] = value
    made.set_content(body)
    return made


def expected(body: str = BODY) -> str:
    subject = "Über die Reise, " + " ".join(["die sehr lang war"] * 8)
    return f"From: José Ñ <jose@example.org>\nTo: list@example.org\nSubject: {subject}\n\n{body}"


def with_a_picture(made: EmailMessage) -> EmailMessage:
    made.add_attachment(b"\x89PNG" * 10_000, maintype="image", subtype="png", filename="sea.png")
    made.add_attachment("A text beside it.", filename="notes.txt")
    return made


def with_html(made: EmailMessage) -> EmailMessage:
    made.add_alternative("<html><body><p>Another version.</p></body></html>", subtype="html")
    return made


@pytest.mark.parametrize("how", [lambda made: made, with_a_picture, with_html])
@pytest.mark.parametrize("encoding", ["quoted-printable", "base64", "8bit"])
def test_a_message_is_its_usual_headers_and_its_text(tmp_path: Path, how: object, encoding: str) -> None:
    made = message()
    made.set_content(BODY, cte=encoding)
    (tmp_path / "a.eml").write_bytes(how(made).as_bytes())  # type: ignore[operator]
    rows, rejects = documents_and_rejects(tmp_path / "a.eml")
    assert rejects == []
    assert [row["text"] for row in rows] == [expected()]


def test_of_a_message_in_html_the_text_of_the_page_is_read(tmp_path: Path) -> None:
    pytest.importorskip("resiliparse")
    made = message()
    said = "This is a paragraph of the message, which is long enough to be its main text. " * 3
    made.set_content(f"<html><body><style>p {{}}</style><p>{said}</p></body></html>", subtype="html")
    (tmp_path / "a.eml").write_bytes(made.as_bytes())
    [row], _ = documents_and_rejects(tmp_path / "a.eml")
    assert said.strip() in row["text"] and "<p>" not in row["text"] and "style" not in row["text"]
    assert row["text"].startswith("From: José")


def test_a_mailbox_is_read_as_python_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "all.mbox"
    box = mailbox.mbox(path)
    bodies = [f"Number {number}.\n\nFrom me to you, as from nobody else.\n" for number in range(30)]
    for number, body in enumerate(bodies):
        box.add(with_a_picture(message(body)) if number % 7 == 3 else message(body))
    box.close()
    rows, rejects = documents_and_rejects(path)
    assert rejects == []
    assert [row["text"].rstrip() for row in rows] == [expected(body).rstrip() for body in bodies]


def test_a_broken_message_costs_itself_only(tmp_path: Path) -> None:
    begin = b"From a@example.org Mon Jan  1 10:00:00 2024\n"
    good = b"Subject: good\n\nA text.\n\n"
    only_a_picture = b"Content-Type: image/png\nContent-Transfer-Encoding: base64\n\niVBORw0KGgo=\n\n"
    undecodable = b"Content-Type: text/plain; charset=utf-8\n\n\xff\xfe\xfa\n\n"
    messages = [good, only_a_picture, undecodable, b"\n", good]
    (tmp_path / "a.mbox").write_bytes(b"".join(begin + each for each in messages))
    rows, rejects = documents_and_rejects(tmp_path / "a.mbox")
    assert len(rows) == 2
    assert [(one.row, str(one.reason)) for one in rejects] == [
        (2, "empty_text"),
        (3, "invalid_utf8"),
        (4, "empty_text"),
    ]
    assert "image/png" in rejects[0].detail


def test_a_header_in_a_charset_that_cannot_be_one_is_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "a.eml").write_bytes(b"Subject: =?utf-\xff?q?Hello?=\n\nA body.\n")
    [row], rejects = documents_and_rejects(tmp_path / "a.eml")
    assert (row["text"], rejects) == ("Subject: =?utf-\ufffd?q?Hello?=\n\nA body.\n", [])


@pytest.mark.parametrize("named", [b'="utf-8\0"', b"*=utf-8\0'en'utf-8"])
def test_a_charset_with_a_zero_in_its_name_is_that_of_the_settings(tmp_path: Path, named: bytes) -> None:
    head = b"Content-Type: text/plain; charset" + named
    (tmp_path / "a.eml").write_bytes(head + b"\n\nGr\xc3\xbc\xc3\x9fe.\n")
    [row], rejects = documents_and_rejects(tmp_path / "a.eml")
    assert (row["text"], rejects) == ("Gr\xfc\xdfe.\n", [])


def test_a_message_that_names_no_encoding_has_that_of_the_settings(tmp_path: Path) -> None:
    (tmp_path / "a.eml").write_bytes(b"Subject: caf\n\nUn caf\xe9.\n")
    assert documents_and_rejects(tmp_path / "a.eml")[1][0].reason == "invalid_utf8"
    [row], _ = documents_and_rejects(tmp_path / "a.eml", encoding="latin-1")
    assert row["text"].endswith("Un café.\n")


def test_mail_in_japanese_of_seven_bits_is_read(tmp_path: Path) -> None:
    said = "これは日本語の本文です。\n"
    made = message(said)
    made.set_content(said, charset="iso-2022-jp")
    (tmp_path / "a.eml").write_bytes(made.as_bytes())
    (tmp_path / "b.eml").write_bytes(b"Subject: none\n\n" + said.encode("iso-2022-jp"))
    rows, rejects = documents_and_rejects(tmp_path / "*.eml")
    assert rejects == []
    assert [row["text"].endswith(said) for row in rows] == [True, True]


def test_a_message_that_is_too_long_costs_itself_even_in_one_line(tmp_path: Path) -> None:
    begin = b"From a@example.org Mon Jan  1 10:00:00 2024\n"
    long = b"Subject: long\n\n" + b"a" * MAX_DOCUMENT_BYTES + b"\n\n"
    (tmp_path / "a.mbox").write_bytes(begin + long + begin + b"Subject: good\n\nA text.\n")
    rows, rejects = documents_and_rejects(tmp_path / "a.mbox")
    assert [row["text"] for row in rows] == ["Subject: good\n\nA text.\n"]
    assert [(one.row, str(one.reason)) for one in rejects] == [(1, "too_long")]


PARTS = st.sampled_from(
    [
        *(b"Content-Type: multipart/mixed; boundary=x\n", b"Content-Type: text/plain; charset=nobody\n"),
        *(
            b"--x\n",
            b"--x--\n",
            b"\n",
            b"Subject: =?utf-8?B?!!?=\n",
            b"Subject: =?no?Q?=E9?=\n",
            b"\xff\xfe\n",
        ),
        *(
            b"Content-Transfer-Encoding: base64\n",
            b"From: a\n",
            b"From a 10:00\n",
            b"AAA=\n",
            b"text\n",
            b":\n",
        ),
        *(b"Content-Type: message/rfc822\n", b"Content-Disposition: attachment\n", b"MIME-Version: 1.0\n"),
    ]
)


@given(st.lists(PARTS, max_size=30), st.booleans(), st.integers(1, 50))
def test_whatever_a_file_holds_each_message_is_read_or_set_aside(
    parts: list[bytes], is_mailbox: bool, block: int
) -> None:
    content = b"".join(parts)
    rejects: list[object] = []
    batches = Batches("c", rejects, None)  # type: ignore[arg-type]
    reader = RowReader("a.eml", FilesConfig(paths=("a.eml",)), batches)
    blocks = (content[at : at + block] for at in range(0, len(content), block))
    read = [*read_mail(blocks, reader, "utf-8", mailbox=is_mailbox), *batches.rest()]
    documents = sum(batch.num_rows for batch in read)
    assert documents + len(rejects) == 1 or is_mailbox or not content


FLOWED = """A paragraph that goes \non over \nthree lines.
 From the start.

> Quoted, and \n> going on.
>> Deeper \n> and back.
-- \nJosé
"""
LAID_OUT = """A paragraph that goes on over three lines.
From the start.

> Quoted, and going on.
>> Deeper \n> and back.
-- \nJosé
"""


@pytest.mark.parametrize("coding", ["8bit", "quoted-printable", "base64"])
@pytest.mark.parametrize("delsp", ["no", "yes"])
def test_paragraphs_that_a_program_has_wrapped_are_whole(tmp_path: Path, coding: str, delsp: str) -> None:
    made = EmailMessage()
    body = FLOWED if delsp == "no" else FLOWED.replace(" \n", "  \n").replace("--  \n", "-- \n")
    made.set_content(body, cte=coding)
    made.set_param("format", "flowed")
    made.set_param("delsp", delsp)
    (tmp_path / "a.eml").write_bytes(bytes(made))
    [row], rejects = documents_and_rejects(tmp_path / "a.eml")
    assert (row["text"], rejects) == (LAID_OUT, [])


@pytest.mark.parametrize(
    ("named", "written", "text"),
    [
        ("iso-8859-1", "cp1252", "a \u2013 \u201cquoted\u201d \u20ac"),
        ("gb2312", "gbk", "\u6731\u9555\u57fa"),
        ("ks_c_5601-1987", "cp949", "\ub620\ubc29\uac01\ud558"),
        ("shift_jis", "cp932", "\u2460 \u9ad9"),
        ("iso-8859-1", "latin-1", "\x81 caf\xe9"),
        ("x-unknown", "utf-8", "caf\xe9"),
    ],
)
def test_a_charset_is_read_as_browsers_read_its_name(
    tmp_path: Path, named: str, written: str, text: str
) -> None:
    head = f"Content-Type: text/plain; charset={named}\nContent-Transfer-Encoding: 8bit\n\n"
    (tmp_path / "a.eml").write_bytes(head.encode() + text.encode(written))
    [row], rejects = documents_and_rejects(tmp_path / "a.eml")
    assert (row["text"], rejects) == (text, [])
