"""Mail, one message in a file or a mailbox (`.mbox`) of many: the usual headers and the body."""

import codecs
import re
from collections.abc import Iterator
from contextlib import suppress
from email import message_from_bytes
from email.errors import MessageError
from email.header import decode_header, make_header
from email.message import Message

import pyarrow as pa

from pipeline.sources.documents import MAX_DOCUMENT_BYTES, SourceDocument, location
from pipeline.sources.formats.compression import BrokenCompressionError
from pipeline.sources.formats.jsonl import lines_of
from pipeline.sources.formats.rows import RowReader
from pipeline.sources.formats.text_files import universal_newlines
from pipeline.sources.source import Reason, RefusedError
from pipeline.sources.web.pages import page_text

HEADERS = ("From", "To", "Cc", "Date", "Subject")
# The line that a mailbox has before each message, after a blank one. A sentence may begin with the word, too.
_BEGINS = re.compile(rb"From \S.*\d\d:\d\d")
_QUOTED = re.compile(rb"^>(>*From )")
_QUOTES = re.compile("(>*) ?")
_SIGNATURE = "-- "
# What programs write under the name of a smaller charset, as browsers read it (names of Python's codecs).
_LARGER = {
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "euc_kr": "cp949",
    "shift_jis": "cp932",
    "big5": "big5hkscs",
    "tis-620": "cp874",
}


def read_mail(
    content: Iterator[bytes], reader: RowReader, encoding: str, *, mailbox: bool
) -> Iterator[pa.RecordBatch]:
    """The messages of a file, decoded. Of each message the plain text is read or, where it has none, that of
    its HTML. Attachments are left out. `encoding` is that of messages that name none. Raises what `content`
    raises, and SourceError for HTML where the extra `web` is missing.
    """
    for row, message in enumerate(_messages(content, mailbox), start=1):
        try:
            text = _text(message, encoding)
        except RefusedError as error:
            reader.reject(row, error.reason, str(error))
        else:
            document = SourceDocument(location(reader.file, row), text, row, reader.file)
            reader.batches.add(reader.file, document)
        yield from reader.batches.full()
        if reader.batches.done:
            return


def _messages(content: Iterator[bytes], mailbox: bool) -> Iterator[bytes | None]:
    """Each message, and None for one that is too long, which is not held in memory. Of a damaged file, what
    comes before the damage.
    """
    held, size, may_begin = list[bytes](), -1, mailbox  # a line end stands between lines only
    damage = None
    try:
        for line in lines_of(content):
            if line is None:
                size, may_begin = MAX_DOCUMENT_BYTES + 1, False
                continue
            if may_begin and _BEGINS.match(line):
                if size >= 0:
                    yield _whole([*held, b""], size + 1)
                held, size = [], -1
                continue
            size += len(line) + 1
            if size <= MAX_DOCUMENT_BYTES:
                held.append(_QUOTED.sub(rb"\1", line) if mailbox else line)
            may_begin = mailbox and not line.strip()
    except BrokenCompressionError as error:
        damage = error
    if size > 0:
        yield _whole(held, size)
    if damage:
        raise damage


def _whole(held: list[bytes], size: int) -> bytes | None:
    return b"\n".join(held) if size <= MAX_DOCUMENT_BYTES else None


def _text(content: bytes | None, encoding: str) -> str:
    if content is None:
        raise RefusedError(Reason.TOO_LONG, f"the message has more than {MAX_DOCUMENT_BYTES} bytes")
    message = message_from_bytes(content)
    body = _body(message, encoding)
    headers = [f"{name}: {value}" for name in HEADERS if (value := _header(message, name))]
    return universal_newlines("\n".join([*headers, "", body] if headers else [body]))


def _header(message: Message, name: str) -> str:
    """A header in one line, decoded as far as it can be; empty if there is none."""
    written = str(message.get(name, ""))
    with suppress(MessageError, LookupError, ValueError):  # an unknown charset, or bytes that are none
        written = str(make_header(decode_header(written)))
    return " ".join(written.encode("utf-8", "replace").decode().split())


def _body(message: Message, encoding: str) -> str:
    parts = [part for part in message.walk() if not part.is_multipart()]
    shown = [part for part in parts if part.get_content_disposition() != "attachment"]
    if plain := [part for part in shown if part.get_content_type() == "text/plain"]:
        try:
            return "\n\n".join(_laid_out(part, _decoded(part, encoding)) for part in plain)
        except UnicodeDecodeError as error:
            why = f"byte {error.start} of the body: {error.reason} ({error.encoding})"
            raise RefusedError(Reason.INVALID_UTF8, why) from None
    for part in shown:
        if part.get_content_type() == "text/html":
            return page_text(_bytes(part), _charset(part, encoding))
    kinds = ", ".join(sorted({part.get_content_type() for part in parts}))
    raise RefusedError(Reason.EMPTY_TEXT, f"the message has no text, only {kinds}")


def _charset(part: Message, usual: str) -> str:
    with suppress(ValueError):  # Python looks up a name with a zero
        return part.get_content_charset(usual)
    return usual


def _decoded(part: Message, encoding: str) -> str:
    body, charset = _bytes(part), _charset(part, encoding)
    with suppress(LookupError, ValueError):  # a wrong or unknown charset
        return body.decode(_LARGER.get(codecs.lookup(charset).name, charset))
    with suppress(LookupError, ValueError):  # bytes that only the smaller one has
        return body.decode(charset)
    return body.decode(encoding)


def _laid_out(part: Message, body: str) -> str:
    """The text with its paragraphs on one line each, where the sender's program says which lines go on
    (`format=flowed`, RFC 3676).
    """
    if str(part.get_param("format", "")).lower() != "flowed":
        return body
    deletes = str(part.get_param("delsp", "")).lower() == "yes"
    lines: list[str] = []
    open_depth = -1  # of quotes, of a line that goes on
    for line in universal_newlines(body).split("\n"):
        quotes = _QUOTES.match(line)
        assert quotes  # of any line
        depth, text = len(quotes[1]), line[quotes.end() :]
        goes_on = text.endswith(" ") and text != _SIGNATURE
        text = text[:-1] if goes_on and deletes else text
        if depth == open_depth and text != _SIGNATURE:
            lines[-1] += text
        else:
            lines.append(f"{quotes[1]} {text}" if depth else text)
        open_depth = depth if goes_on else -1
    return "\n".join(lines)


def _bytes(part: Message) -> bytes:
    body = part.get_payload(decode=True)
    assert isinstance(body, bytes)  # since it has no parts
    return body
