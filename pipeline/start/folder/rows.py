"""What rows hold: conversations and in which format, else which column is the text, or why none is."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import orjson
import pyarrow.parquet as pq
import pyarrow.types as pt

from pipeline.sources.formats.conversations import (
    CONTENTS,
    FORMS,
    OTHER_LISTS,
    TRANSCRIPT,
    UNUSUAL,
    UNUSUAL_LISTS,
    Format,
    conversation,
)
from pipeline.sources.formats.messages import messages
from pipeline.sources.formats.rows import Row
from pipeline.sources.formats.transcripts import is_transcript
from pipeline.sources.source import RefusedError
from pipeline.store.params import MESSAGE

TEXT_COLUMNS = ("text", "body", "content")
# Columns by which rows are known that belong together, and would each be a document, and what to do.
_INTO_TEXT = (
    "write its messages into a .txt (python3 -c 'import csv,sys; "
    "[print({}) for row in csv.DictReader(sys.stdin){}]')"
)
OF_CHATS = (
    (
        {"type", "user", "text", "ts"},
        "a chat that Slack exported: write the messages of each folder into a .txt (jq -r "
        r"""'.[]|select(.user and .text)|"\(.user_profile.real_name // .user): \(.text)"' FOLDER/*.json """
        "> FOLDER.txt)",
    ),
    (
        {"AuthorID", "Author", "Date", "Content"},
        "a chat that Discord exported: export it as plain text, or "
        + _INTO_TEXT.format('row["Author"]+": "+row["Content"]', ""),
    ),
    (
        {"StrContent", "IsSender", "NickName", "Type"},
        "a chat of WeChat: "
        + _INTO_TEXT.format('row["NickName"]+": "+row["StrContent"]', ' if row["Type"]=="1"'),
    ),
    (
        {"Date", "User", "Message"},
        "a chat of KakaoTalk: " + _INTO_TEXT.format('row["User"]+": "+row["Message"]', ""),
    ),
    (
        {"Chat Session", "Message Date", "Sender Name", "Text"},
        "a chat that iMazing exported: "
        + _INTO_TEXT.format('(row["Sender Name"] or "I")+": "+row["Text"]', ' if row["Text"]'),
    ),
    (
        {"message_tree_id", "message_id", "parent_id", "role"},
        "its rows are single messages of OpenAssistant: take its file of whole trees, whose name ends in "
        "`.trees.jsonl.gz`",
    ),
    (
        {"header", "title", "safeHtmlItem"},
        "the activity of Gemini: write its answers as JSON lines (jq -c '.[]|select(.safeHtmlItem)|{prompt: "
        r"""(.title|sub("^Prompted ";"")), response: ([.safeHtmlItem[].html]|add|gsub("<[^>]*>";""))}')""",
    ),
)
# The same of pages, by their first bytes.
OF_PAGES = {
    b'class="page_body chat_page"': "a page of a chat that Telegram exported: export it as JSON instead",
    b'class="chatlog': "a page of a chat that Discord exported: export it as plain text instead",
}
LONGEST_NAME = 80  # characters of a column
# How much more text a nested column may hold than the column of text, which is a title or an id otherwise.
MOST_NESTED = 5
LONGEST_MESSAGE = 16 << 10  # characters on average


def talks_in(rows: Sequence[Row]) -> tuple[Format, list[str]] | None:
    """The format of rows that are preferences or conversations, and their texts. None if most are none. If
    none can be learned, the texts are the rows as they are: the reader says why.
    """
    kinds: tuple[Format, ...] = ("preferences", "chat")
    for kind in kinds:
        for form in FORMS[kind]:
            held = [row for row in rows if all(row.get(name) not in (None, "", []) for name in form)]
            held = [row for row in held if _is_talk(form, row)]
            if len(held) * 2 > len(rows):
                texts = []
                for row in held:
                    with suppress(RefusedError):
                        texts.append(conversation(kind, dict(row)))
                return kind, texts or list(map(str, held))
    return None


def transcripts_in(documents: Sequence[str]) -> list[str]:
    """The conversations in documents of plain text; none unless each whole document is one. A message of a
    long text is rather the text.
    """
    whole = documents[:-1] or documents  # the last one may be cut
    talks = talks_in([{"text": document} for document in whole])
    said = talks[1] if talks and talks[0] == "chat" else []
    long = any(len(one) > one.count(MESSAGE) * LONGEST_MESSAGE for one in said)
    return [] if long or len(said) < len(whole) else said


def _is_talk(form: tuple[str, ...], row: Row) -> bool:
    """Whether columns with the names of a form are one."""
    sizes = {name: len(str(value)) for name, value in row.items()}
    if form in (*UNUSUAL, *UNUSUAL_LISTS) and sum(map(sizes.__getitem__, form)) * 2 < sum(sizes.values()):
        return False  # beside a text, `data` and `input` are something else
    value = row[form[0]]
    if form in (*OTHER_LISTS, CONTENTS, TRANSCRIPT, *UNUSUAL_LISTS) and isinstance(value, str):
        return is_transcript(value)
    if form in UNUSUAL_LISTS:
        with suppress(RefusedError):
            return len(messages(form[0], value, None, set())) > 1
        return False
    return form != TRANSCRIPT


def column_of_text(rows: Sequence[Row]) -> str | None:
    """The column with a usual name that holds prose, else the one with the most prose. What repeats counts
    only where nothing else is there, and so do single words, unless less than half of them is letters, as in
    ids, dates and measurements. None if no column holds a text.
    """
    texts: dict[str, list[str]] = {}
    for row in rows:
        for name, value in row.items():
            if isinstance(value, str) and value.strip():
                texts.setdefault(name, []).append(value)
    prose = {name: _prose(found) for name, found in texts.items()}
    for usual in TEXT_COLUMNS:
        for name in sorted(texts):
            if name.lower() == usual and (prose[name] or not any(prose.values())):
                return name
    most = max(sorted(texts), key=lambda name: (prose[name], _words(texts[name])), default=None)
    return most if most is not None and (prose[most] or _words(texts[most])) else None


def nested_text(rows: Sequence[Row], column: str, table: Path | None) -> str:
    """The nested column that holds the text of the rows, of which `column` is but a title or an id; empty if
    there is none. `table`: a file of Parquet, of which nested columns are not among the rows.
    """
    if column.lower() in TEXT_COLUMNS:
        return ""
    if table is None:
        names = dict.fromkeys(name for row in rows for name in row)
        values = {name: [row[name] for row in rows if name in row] for name in names}
        sizes = {name: _prose(texts_in(held)) for name, held in values.items()}
        nested = {name for name, held in values.items() if any(isinstance(one, dict | list) for one in held)}
    else:
        sizes = _bytes_of_columns(table)
        nested = {one.name for one in pq.read_schema(table) if pt.is_nested(one.type)}
    most = max(nested, key=lambda name: (sizes[name], name), default=column)
    return most if sizes[most] > MOST_NESTED * max(sizes[column], 1) else ""


def is_name(column: str) -> bool:
    """Whether the first row names a column, and does not hold a text or nothing."""
    return 0 < len(column) <= LONGEST_NAME and len(column.splitlines()) == 1


def without_text(rows: Sequence[Row], table: Path | None) -> str:
    """Why rows have no text. `table`: as for `nested_text`."""
    kinds: dict[str, str] = {}
    for row in rows:
        for name, value in row.items():
            if kinds.get(name) in (None, "null"):
                kinds[name] = "null" if value is None else type(value).__name__
    if table is not None:
        kinds = {column.name: str(column.type) for column in pq.read_schema(table)}
    there = ", ".join(f"{name!r} ({kind})" for name, kind in sorted(kinds.items()))
    return f"no column holds a text in its first {len(rows):,} rows; there are {there}"


def list_of_rows(row: Row) -> str:
    """The place of the rows in a file of one object, as `jq` writes it: `.chats.list[].messages[]`. Empty if
    lists of objects are not most of it.
    """
    path, place = "", ""
    value: object = row
    while isinstance(value, dict):
        sizes = {name: len(orjson.dumps(one)) for name, one in value.items() if isinstance(one, dict | list)}
        most = max(sizes, key=sizes.__getitem__, default="")
        if not sizes or sizes[most] * 2 < len(orjson.dumps(value)):
            break
        place += f".{most if most.isidentifier() else json.dumps(most)}"
        value = value[most]
        if isinstance(value, list):
            value = next((one for one in value if isinstance(one, dict)), None)
            path = place = f"{place}[]" if value else ""
    return path


def texts_in(value: object) -> Iterator[str]:
    """All texts of a value, such as the roles and contents of a list of messages."""
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from texts_in(one)
    else:
        yield str(value)


def _prose(texts: Iterable[str]) -> int:
    """Characters of different texts that have several words, or other letters than those of ASCII."""
    return sum(
        len(text)
        for text in set(texts)
        if not text.isascii() or sum(any(map(str.isalpha, word)) for word in text.split()) > 1
    )


def _words(texts: Sequence[str]) -> int:
    """Characters of texts if most of them are letters, as in names; else 0."""
    characters = "".join(texts)
    return len(characters) if sum(map(str.isalpha, characters)) * 2 > len(characters) else 0


def _bytes_of_columns(table: Path) -> dict[str, int]:
    """Bytes of the texts in each column of a Parquet file. Within nested columns, bytes that are not marked
    as texts are pictures and the like. Bytes of a column that a damaged file does not name are left out.
    """
    metadata = pq.read_metadata(table)
    names = metadata.schema.to_arrow_schema().names
    sizes = dict.fromkeys(names, 0)
    for number in range(metadata.num_row_groups):
        for place in range(metadata.num_columns):
            column = metadata.row_group(number).column(place)
            path = column.path_in_schema
            name = path if path in sizes else next((one for one in names if path.startswith(f"{one}.")), None)
            is_text = name == path or str(metadata.schema.column(place).logical_type) == "String"
            if name is not None and is_text:
                sizes[name] += column.total_uncompressed_size
    return sizes
