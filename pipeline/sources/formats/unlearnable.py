"""Rows that must not be learned from: the marks by which a row says so, and columns that no text holds."""

import math
import re
import warnings
from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

from pipeline.sources.source import Reason, RefusedError

# The system message, in a column of its own.
SYSTEM = ("system", "system_prompt", "system_message", "system_instruction", "systemInstruction")
# What a model of text cannot see or call, as columns of a row and as keys of a message.
MEDIA = ("image", "images", "video", "videos", "audio", "audios")
TOOLS = ("tools", "functions")
CALLS = ("tool_calls", "function_call")
# What an assistant thought before it answered.
REASONING = ("reasoning_content", "reasoning", "thinking", "thought", "thoughts")
# Which of its messages OpenAI's harmony shows to people: those of no channel, or of this one.
CHANNEL, SHOWN_CHANNEL = "channel", "final"
# Marks of a message or a row that mean yes unless they say no, and those that mean no unless they do.
LEARNED = (
    "loss",
    "train",
    "training",
    "trainable",
    "is_trainable",
    "train_on_turn",
    "learn",
    "weight",
    "loss_weight",
    "loss_mask",
)
GOOD = ("label", "kto_tag", "is_good", "good", "desirable", "is_desirable", "is_chosen", "is_preferred")
LEFT_OUT = ("mask", "masked", "ignore", "ignored", "skip", "exclude", "excluded")
DELETED = ("deleted", "is_deleted")
PARTLY = ("train_detail", "training_detail")  # characters of a message, in lists
NO = {"false", "no", "n", "f", "off", "bad", "undesirable", "rejected"}
NOTHING = {"", "[]", "{}", "null", "none"}

OF_MESSAGES = (*LEARNED, *LEFT_OUT, *PARTLY)
OF_ROWS = (*LEARNED, *GOOD, *LEFT_OUT, *DELETED, *PARTLY)
# A regular expression of the answers that have the right form: docs/chat.md.
FORM = "form"
# In the metadata of a document: the keys of its messages that are not read.
UNREAD = "unread_message_keys"
# The columns beside a conversation that decide about it, in a file of any format.
COMPANIONS = (*MEDIA, *TOOLS, *OF_ROWS)
_DECIDING, _MARKS = {*COMPANIONS}, {*OF_MESSAGES}


def is_empty(value: object) -> bool:
    """Whether a value says nothing, in a format that has null, empty lists or NaN, or in CSV."""
    if isinstance(value, str):
        return value.strip().lower() in NOTHING
    if isinstance(value, list | dict):
        return all(one is None for one in (value.values() if isinstance(value, dict) else value))
    return not value or (isinstance(value, float) and math.isnan(value))


def says_no(value: object) -> bool:
    """Whether a mark is false: 0 or less, or a word for it."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return str(value).strip().lower() in NO
    return isinstance(value, int | float | Decimal) and value <= 0


def refuse_unlearnable(row: Mapping[str, Any], answers: Iterable[int]) -> None:
    """Raises RefusedError for a row that is marked as no example, or has what no text holds.
    `answers`: the places of the assistant's messages, for marks that are lists with an entry per message.
    """
    if row.keys().isdisjoint(_DECIDING):
        return
    for name in MEDIA:
        if not is_empty(row.get(name)):
            why = f"the row has an image, sound or video in column {name!r}, which a model of text cannot see"
            raise RefusedError(Reason.IMAGES, why)
    for name in TOOLS:
        if not is_empty(row.get(name)):
            why = f"the row has tools to call in column {name!r}, which are no part of the text"
            raise RefusedError(Reason.TOOL_CALLS, why)
    places = list(answers)
    for name in OF_ROWS:
        value = row.get(name)
        if isinstance(value, list) and name not in PARTLY:
            value = [value[place] for place in places if place < len(value)]
        _refuse_marked("the row", name, value)


def refuse_marked(where: str, message: Mapping[str, Any]) -> None:
    """Raises RefusedError for a message of the assistant that is not wholly to be learned."""
    if not message.keys().isdisjoint(_MARKS):
        for name in OF_MESSAGES:
            _refuse_marked(where, name, message.get(name))


def _refuse_marked(where: str, name: str, value: object) -> None:
    if name in PARTLY:
        marked = not is_empty(value)
    else:
        marked = any(_leaves_out(name, one) for one in (value if isinstance(value, list) else [value]))
    if marked:
        shown = str(value).lower() if isinstance(value, bool) else repr(value)
        raise RefusedError(
            Reason.NOT_LEARNED,
            f"{where} has {name}: {shown[:40]}, which says that it is not to be learned; if it means "
            "something else, rename it",
        )


@lru_cache(maxsize=1024)
def form_error(form: str) -> str | None:
    """Why answers cannot be compared with the form that a row asks for; None if they can."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what a later version may read otherwise
            re.compile(form)
    except (re.error, RecursionError, OverflowError) as error:
        return f"is not a regular expression: {error}"
    return None


def _leaves_out(name: str, value: object) -> bool:
    if name in (*LEFT_OUT, *DELETED):
        return not is_empty(value) and not says_no(value)
    return says_no(value)
