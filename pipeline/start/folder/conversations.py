"""Whether rows are conversations, and in which format."""

from collections.abc import Sequence
from contextlib import suppress

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
