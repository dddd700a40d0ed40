"""What a file is by its first bytes, where its name and the settings say something else. One sentence for the
file explains what the errors of its rows would not.
"""

import codecs
import json
import re

from pipeline.sources.formats.conversations import OF_TALK
from pipeline.sources.source import Reason

Refused = tuple[Reason, str]

COMPRESSED = {
    b"\x1f\x8b": ("gzip", ".gz"),
    b"\x28\xb5\x2f\xfd": ("zstd", ".zst"),
    b"BZh": ("bzip2", ".bz2"),
    b"\xfd7zXZ\x00": ("xz", ".xz"),
}
ZIP, RTF_BEGINS = b"PK\x03\x04", b"{\\rtf"
OTHERS = {
    ZIP: "the file is a zip archive: unpack it",
    b"PAR1": "the file is Parquet: name it .parquet",
    b"%PDF-": "the file is a PDF: write its text into a text file",
    b"\xd0\xcf\x11\xe0": "the file is an Office document: write its text into a text file",
    RTF_BEGINS: "the file is RTF: name it .rtf",
    b"SQLite format 3\0": "the file is a database of SQLite: write its text into a table (.csv)",
    b"ARROW1\0\0": "the file is Arrow: write it as .parquet",
    b"7z\xbc\xaf": "the file is an archive of 7-Zip: unpack it",
    b"Rar!\x1a\x07": "the file is an archive of RAR: unpack it",
    b"window.YTD.": (
        "the file is of an archive of Twitter: write its texts as JSON lines (sed '1s/^[^[]*//' tweets.js | "
        "jq -c '.[].tweet | {text: .full_text}' > tweets.jsonl)"
    ),
}
# Exports of chats: the keys by which each is known, and what writes its messages as lines `NAME: TEXT`.
CHATS = {
    ("text_entities", "from_id"): (
        "Telegram",
        r"""jq -r '..|.messages?|arrays[]|select(.from and .text!="")|"""
        r""""\(.from): \([.text_entities[].text]|add)"'""",
    ),
    ("guild", "isBot"): (
        "Discord",
        r"""jq -r '.messages[]|select(.content!="")|"\(.author.name): \(.content)"'""",
    ),
    ("participants", "sender_name"): (
        "Facebook or Instagram",
        r"""jq -r '.messages|reverse[]|select(.content)|"\(.sender_name): \(.content)"' | """
        "iconv -f utf-8 -t latin1",
    ),
    ("creator", "created_date"): (
        "Google",
        r"""jq -r '.messages[]|select(.text)|"\(.creator.name // .creator.email): \(.text)"'""",
    ),
    ("conversation_id", "chat_message"): (
        "Hangouts",
        r"""jq -r '.conversations[]|(.conversation.conversation.participant_data|map({(.id.gaia_id): """
        r""".fallback_name})|add) as $of|.events[]|(.chat_message.message_content.segment//empty) as $said|"""
        r""""\($of[.sender_id.gaia_id]): \([$said[].text]|add)"'""",
    ),
    ("MessageList", "originalarrivaltime"): (
        "Teams or Skype",
        r"""jq -r '.conversations[].MessageList|reverse[]|select(.messagetype|test("Text"))|"""
        r""""\(.displayName // .from): \(.content|gsub("<[^>]*>";""))"'""",
    ),
    ("chunkedPrompt", "chunks"): (
        "Google AI Studio",
        r"""jq -r '.chunkedPrompt.chunks[]|select(.text and (.isThought|not))|"""
        r""""\(if .role=="user" then "User" else "Assistant" end): \(.text)"'""",
    ),
}
TAR, TAR_AT = b"ustar", 257
MOST_ZEROS, FEW_ZEROS = 0.01, 16  # of the first bytes: their share, and how many say nothing
MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Of seven bits, so that each is valid UTF-8: what switches to their characters.
SWITCHES = ((b"\x1b$B", "iso2022_jp"), (b"\x1b$@", "iso2022_jp"), (b"\x1b$)C", "iso2022_kr"))
LOOKED_AT = 4096
NOT_UTF8 = "if the text is in another encoding, set `encoding`, for example to cp1252"
_ROWS_IN_AN_OBJECT = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"([^"]+)"\s*:\s*\[\s*\{')
_LISTS_OF_ROWS = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[\s*\[\s*\{")
_FEWEST_UNITS = 4
# The share of zeros in the bytes that letters of ASCII leave empty: in a text that mixes scripts, and in one
# of so few units that it may be UTF-8 with some zeros.
_ZEROS_OF_MIXED, _ZEROS_OF_FEW, _FEW_UNITS = 0.4, 0.9, 16
_EAST_ASIAN = re.compile("[\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3]")
_BETWEEN_WORDS = re.compile("[\n ,.\u3000-\u3002\uff01\uff0c\uff1a\uff1b\uff1f]")
_PRINTABLE = re.compile("[\t\r\n -~\u2010-\u2027\u3000-\u303f\uff00-\uffef]")
_OF_TEXT = bytes([*b"\t\n\r\f", *range(0x20, 0x100)])


def not_text(start: bytes, name: str, encoding: str) -> Refused | None:
    """Why a file of text, which begins with `start`, is none in `encoding`; None if it may be."""
    is_ascii = start[:LOOKED_AT].isascii() and b"\0" not in start[:LOOKED_AT]
    for magic, (what, suffix) in COMPRESSED.items():
        if start.startswith(magic) and not is_ascii:  # text may begin with `BZh`
            return Reason.UNSUPPORTED_FORMAT, f"the file holds {what} data: name it {name}{suffix}"
    for magic, why in OTHERS.items():
        if start.startswith(magic):
            return Reason.UNSUPPORTED_FORMAT, why
    if start[TAR_AT:].startswith(TAR) and b"\0" in start[:TAR_AT]:
        return Reason.UNSUPPORTED_FORMAT, "the file is a tar archive: unpack it"
    found = other_encoding(start)
    if found and not codecs.lookup(encoding).name.startswith(found[:6]):
        return Reason.INVALID_UTF8, f"the file is in {found.upper()}: set `encoding: {found}`"
    head = start[:LOOKED_AT]
    if "0".encode(encoding) == b"0" and head.count(0) > max(FEW_ZEROS, MOST_ZEROS * len(head)):
        return Reason.UNSUPPORTED_FORMAT, "the file is not text: many of its bytes are zero"
    return None


def other_encoding(start: bytes) -> str:
    """The encoding of a text that is not UTF-8, as far as its first bytes tell; else empty. UTF-16 and UTF-32
    are known by their mark or by the bytes that are alike in all letters of an alphabet, ISO 2022 by its
    switches. Without a mark, much of such a text is valid UTF-8.
    """
    for mark, encoding in MARKS:
        if start.startswith(mark):
            return encoding
    start = start[:LOOKED_AT]
    for switch, encoding in SWITCHES:
        if switch in start and start.isascii():
            return encoding
    of_four = [_low(start[place::4]) for place in range(4)]
    if len(start) >= 4 * _FEWEST_UNITS:
        if min(of_four[2:]) > 0.9 and of_four[0] < 0.75:
            return "utf-32-le"
        if min(of_four[:2]) > 0.9 and of_four[3] < 0.75:
            return "utf-32-be"
    if len(start) >= 2 * _FEWEST_UNITS:
        if _low(start[1::2]) > 0.9 and _low(start[::2]) < 0.75:
            return "utf-16-le"
        if _low(start[::2]) > 0.9 and _low(start[1::2]) < 0.75:
            return "utf-16-be"
    even, odd = start[::2], start[1::2]
    if len(odd) < 2:
        return ""
    zeros = (even.count(0) / len(even), odd.count(0) / len(odd))
    many = _ZEROS_OF_MIXED if len(odd) >= _FEW_UNITS else _ZEROS_OF_FEW
    if zeros[0] < 0.1 and zeros[1] > many:
        return "utf-16-le"
    if zeros[1] < 0.1 and zeros[0] > many:
        return "utf-16-be"
    return next((encoding for encoding in ("utf-16-le", "utf-16-be") if _is_east_asian(start, encoding)), "")


def _is_east_asian(start: bytes, encoding: str) -> bool:
    """Whether bytes that are no UTF-8 are Chinese, Japanese or Korean in UTF-16: its letters and what stands
    between sentences and words. The latter distinguishes it from other bytes that happen to be letters.
    """
    if len(start) < 2 * _FEWEST_UNITS or _decoded(start, "utf-8") is not None:
        return False
    text = _decoded(start, encoding)
    if text is None:
        return False
    letters, between = len(_EAST_ASIAN.findall(text)), len(_BETWEEN_WORDS.findall(text))
    other = len(_PRINTABLE.findall(text))
    return letters > 0.3 * len(text) and between > 0.01 * len(text) and letters + other > 0.95 * len(text)


def _decoded(start: bytes, encoding: str) -> str | None:
    """None if the bytes are no text in this encoding."""
    try:
        return codecs.getincrementaldecoder(encoding)().decode(start)
    except UnicodeError:
        return None


def _low(column: bytes) -> float:
    """The share of control characters: in UTF-16, the first byte of most alphabets. White space is of any
    text, such as a letter in each line.
    """
    return len(column.translate(None, _OF_TEXT)) / max(1, len(column))


def is_one_a_line(start: bytes, whole: bool) -> bool:
    """Whether a file of JSON, which begins with `start`, may hold one object in each line. `whole`: nothing
    follows.
    """
    lines = [line for line in start.removeprefix(codecs.BOM_UTF8).split(b"\n") if line.strip()]
    if not lines:
        return True
    first, *others = (line.strip() for line in lines)
    if not others and not whole:  # the first line goes on
        return not first.startswith(b"[")
    if first.startswith(b"["):
        return parses(first) and bool(others)
    if not first.startswith(b"{") or parses(first):
        return True
    rest = _after_one_value(first)
    if rest.startswith((b"\r", b"{", b",")):
        return False
    goes_on = others and (first.endswith((b"{", b"[")) or not others[0].startswith(b"{"))
    return not goes_on or bool(rest)


def exported_chat(start: bytes) -> str:
    """What to do with a file of JSON that is the export of a chat; empty if it is none."""
    for keys, (program, command) in CHATS.items():
        if all(f'"{key}"'.encode() in start for key in keys):
            return f"a chat that {program} exported: write its messages into a .txt ({command})"
    return ""


def rows_in_an_object(start: bytes) -> Refused | None:
    """Why a file is refused of which all rows are a list in one object; None if it is none."""
    if why := exported_chat(start):
        return Reason.INVALID_JSON, why
    if _LISTS_OF_ROWS.match(start):
        why = "the rows are lists: write each as an object (jq -c '.[] | {messages: .}')"
        return Reason.INVALID_JSON, why
    found = _ROWS_IN_AN_OBJECT.match(start)
    name = found[1].decode(errors="replace") if found else ""
    if not name or name in OF_TALK:
        return None
    place = name if name.isidentifier() else json.dumps(name)
    why = f"the rows are the list {name!r} of one object: write them alone (jq -c '.{place}[]')"
    return Reason.INVALID_JSON, why


def parses(line: bytes | str) -> bool:
    """Whether Python reads a line of JSON, which takes more than orjson does."""
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _after_one_value(line: bytes) -> bytes:
    """What follows the first JSON value of a line; empty if it has no whole one."""
    text = line.decode(errors="replace")
    try:
        end = json.JSONDecoder().raw_decode(text)[1]
    except (ValueError, RecursionError):
        return b""
    return text[end:].lstrip(" \t").encode()
