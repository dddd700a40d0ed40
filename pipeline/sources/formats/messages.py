"""Messages in the forms that data sets have: role and content, parts of text, a transcript, or JSON text."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import cycle
from typing import Any

import orjson

from pipeline.sources.formats.transcripts import begins_transcript, messages_of, without_end
from pipeline.sources.formats.unlearnable import (
    CALLS,
    CHANNEL,
    MEDIA,
    OF_MESSAGES,
    REASONING,
    SHOWN_CHANNEL,
    TOOLS,
    is_empty,
    refuse_marked,
    refuse_unlearnable,
)
from pipeline.sources.source import Reason, RefusedError
from pipeline.store.errors import kind_of
from pipeline.store.params import MARKS, ROLES

Message = tuple[str, str]  # role, content

# What roles are called elsewhere, in lower case: ShareGPT, OpenAI, Llama, Gemini, OpenAssistant.
OTHER_NAMES = {
    "human": "user",
    "prompter": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bot": "assistant",
    "chatbot": "assistant",
    "model": "assistant",
    "ai": "assistant",
    "developer": "system",
    "observation": "tool",
    "function": "tool",
    "function_response": "tool",
    "ipython": "tool",
}
FUNCTION_CALL = "function_call"  # a role of ShareGPT
PARTS = "parts"  # where Gemini has the content; elsewhere perhaps more than the content beside it
ROLE_KEYS = ("role", "from", "sender", "speaker")
CONTENT_KEYS = ("content", "value", "text", "message", "utterance", PARTS)
PLAIN, MARKED, CALLING = {*ROLE_KEYS, *CONTENT_KEYS[:3]}, {*OF_MESSAGES}, {*CALLS, *TOOLS}
# What a turn may be called that holds a question and its answer, such as `{"human": ..., "assistant": ...}`.
TURN = {**{name: name for name in ROLES}, **OTHER_NAMES, "input": "user", "output": "assistant"}
# Types of parts of content.
THOUGHT, CALLED = ("thinking", "reasoning"), ("tool_use", "tool_result", "tool_call")
SEEN = ("image", "input_image", "video", "audio", "input_audio", "file", "input_file")
TEXT = ("", "text", "input_text", "output_text")
# The same types by the keys of a part without a type, as in Gemini: in lower case, without underscores.
UNTYPED = {
    "thought": "thinking",
    "functioncall": "tool_call",
    "functionresponse": "tool_result",
    "executablecode": "tool_use",
    "codeexecutionresult": "tool_result",
    "inlinedata": "file",
    "filedata": "file",
}
UNSEEN = "which a model of text cannot see"
UNTHOUGHT = "which would not be learned: write it into the content, or take it out"
OPENS = ("system", "user")  # roles that begin a whole conversation
_MARK = re.compile(f"[{''.join(MARKS)}]")


def messages(column: str, value: Any, role: str | None, unread: set[str]) -> list[Message]:
    """The messages in a column, of at least one. A text is a list in JSON, a transcript, or the message of
    `role` if there is one. Keys that are not read are added to `unread`. Raises RefusedError.
    """
    if isinstance(value, str):
        value = _of_text(column, value, role)
    if isinstance(value, Mapping) and isinstance(value.get("messages"), list):
        refuse_unlearnable(value, ())  # as in OpenAI's `input`, beside its tools
        value = value["messages"]
    elif isinstance(value, Mapping) and value and all(isinstance(one, list) for one in value.values()):
        value = _by_column(column, value)
    elif isinstance(value, Mapping) and {*ROLE_KEYS} & {*value}:
        value = [value]
    if not isinstance(value, list) or not value:
        marked = " and no transcript that docs/chat.md names: write its turns as `messages`"
        other = marked if isinstance(value, str) else ""
        raise RefusedError(Reason.NO_MESSAGES, f"column {column!r} holds no list of messages{other}")
    # As in UltraChat: a question, its answer, and so on.
    if len(value) > 1 and all(isinstance(one, str) for one in value):
        value = [{"role": role, "content": one} for role, one in zip(cycle(("user", "assistant")), value)]
    value = [message for one in value for message in _of_turn(one)]
    return [
        _message(f"message {place} of {column!r}", one, unread) for place, one in enumerate(value, start=1)
    ]


def _of_turn(turn: Any) -> list[Any]:
    """The messages of an object with the texts of several roles; of any other, that object."""
    if not isinstance(turn, dict) or not {*turn}.isdisjoint(ROLE_KEYS):
        return [turn]
    names = [name for name, text in turn.items() if name in TURN and not is_empty(text)]
    said = {TURN[name]: turn[name] for name in names}
    if len(said) < len(names) or not {"user", "assistant"} <= {*said}:
        return [turn]
    beside = {name: value for name, value in turn.items() if name not in TURN}
    return [
        {"role": role, "content": said[role], **(beside if role == "assistant" else {})}
        for role in ROLES
        if role in said
    ]


def turns(column: str, value: Any) -> list[Message]:
    """Earlier turns, as Alpaca has them: pairs of a question and an answer. Raises RefusedError."""
    if is_empty(value):
        return []
    if isinstance(value, str):
        value = _json(column, value)
    pairs = value if isinstance(value, list) else [value]
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        why = f"column {column!r} holds no list of pairs of a question and an answer"
        raise RefusedError(Reason.CONTENT_NOT_TEXT, why)
    said = [
        (role, content_of(f"turn {place} of {column!r}", content))
        for place, pair in enumerate(pairs, start=1)
        for role, content in zip(("user", "assistant"), pair, strict=True)
    ]
    if any(is_answer(one) and not one[1].strip() for one in said):
        raise RefusedError(Reason.NO_ANSWER, f"column {column!r} has an answer without text")
    return said


def is_answer(message: Message) -> bool:
    return message[0] == "assistant"


def alike(one: Message, other: Message) -> bool:
    """Whether two messages are the same but for white space around them."""
    return one[0] == other[0] and one[1].strip() == other[1].strip()


def joined(prompt: Sequence[Message], said: Sequence[Message]) -> list[Message]:
    """The messages of a prompt and then what is `said`. What is said may repeat the prompt as a whole or its
    end, also behind a system message, in another case or with other white space. Raises RefusedError
    where it repeats another question.
    """
    asked, found = [*map(_spelling, prompt)], [*map(_spelling, said)]
    opens = said[0][0]
    places = range(len(said) - len(prompt) + 1)
    if opens in OPENS and any(found[start : start + len(prompt)] == asked for start in places):
        return list(said)
    for size in range(min(len(prompt), len(said)), 0, -1):
        if asked[-size:] == found[:size]:
            return [*prompt[:-size], *said]
    if opens == "system" or opens == prompt[-1][0] == "user":
        why = f"'prompt' is no part of the messages beside it, which begin with one of the {opens}"
        raise RefusedError(Reason.PROMPT_DIFFERS, why)
    return [*prompt, *said]


def _spelling(message: Message) -> Message:
    return message[0], " ".join(message[1].split()).casefold()


def is_alone(value: Any) -> bool:
    """Whether a column holds one message, not a conversation."""
    if isinstance(value, str):
        return not (begins_transcript(value) or value.lstrip()[:1] in ("[", "{"))
    return isinstance(value, Mapping) or (isinstance(value, list) and len(value) == 1)


def _of_text(column: str, text: str, role: str | None) -> Any:
    """A text as a list of messages, or unchanged."""
    if text.lstrip()[:1] in ("[", "{"):
        if role is None:
            return _json(column, text)
        with suppress(orjson.JSONDecodeError):
            if _are_messages(found := orjson.loads(text)):
                return found
    if (said := messages_of(column, text, role)) is not None:
        return said
    return text if role is None else [{"role": role, "content": without_end(text)}]


def _json(column: str, text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        why = f"column {column!r} is a text that is not a JSON list: {error}"
        raise RefusedError(Reason.NO_MESSAGES, why) from None


def _are_messages(found: Any) -> bool:
    return (
        isinstance(found, list)
        and bool(found)
        and all(isinstance(one, dict) and {*ROLE_KEYS} & {*one} and {*CONTENT_KEYS} & {*one} for one in found)
    )


def _by_column(column: str, lists: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    if len({*map(len, lists.values())}) > 1:
        sizes = ", ".join(f"{len(one)} of {name}" for name, one in lists.items())
        why = f"the lists in column {column!r} are not of one length: {sizes}"
        raise RefusedError(Reason.CONTENT_NOT_TEXT, why)
    return [dict(zip(lists, one, strict=True)) for one in zip(*lists.values(), strict=True)]


def _message(where: str, message: Any, unread: set[str]) -> Message:
    if not isinstance(message, dict):
        why = f"{where} is {kind_of(message)}, no object with `role` and `content`"
        raise RefusedError(Reason.CONTENT_NOT_TEXT, why)
    others = {key: message[key] for key in message.keys() - PLAIN}
    # a mark that is false is not empty
    others = {key: value for key, value in others.items() if key in MARKED or not is_empty(value)}
    named = next((message[key] for key in ROLE_KEYS if message.get(key)), None)
    name = named.strip().lower() if isinstance(named, str) else None
    if name == FUNCTION_CALL or others.keys() & CALLING:
        raise RefusedError(Reason.TOOL_CALLS, f"{where} calls a tool")
    role = OTHER_NAMES.get(name, name) if name is not None else None
    if role not in ROLES:
        raise RefusedError(Reason.UNKNOWN_ROLE, f"{where} has the role {named!r}, none of {', '.join(ROLES)}")
    for key in MEDIA if others else ():
        if key in others:
            raise RefusedError(Reason.IMAGES, f"{where} has something in {key!r}, {UNSEEN}")
    key = next((key for key in CONTENT_KEYS if message.get(key) is not None), "")
    text = content_of(where, message.get(key))
    if role == "assistant":
        _refuse_answer(where, text, others)
    unread.update(others.keys() - MARKED - {CHANNEL, key})
    return role, text


def _refuse_answer(where: str, text: str, others: Mapping[str, Any]) -> None:
    """Raises RefusedError for an answer that is not learned, or not as it is written."""
    refuse_marked(where, others)
    for key in REASONING if others else ():
        if key in others:
            raise RefusedError(Reason.REASONING, f"{where} has {key!r}, {UNTHOUGHT}")
    if (channel := others.get(CHANNEL, SHOWN_CHANNEL)) != SHOWN_CHANNEL:
        why = f"{where} is of the channel {channel!r}, which people do not see: take it out"
        raise RefusedError(Reason.REASONING, why)
    if not text or text.isspace():
        raise RefusedError(Reason.NO_ANSWER, f"{where} is an answer without text")


def content_of(where: str, content: Any) -> str:
    """The text of a content, which may be in parts. Raises RefusedError for any other."""
    if isinstance(content, dict):
        content = content.get(PARTS) or [content]
    if isinstance(content, list) and content:
        content = "".join(_part(where, part) for part in content)
    if not isinstance(content, str):
        raise RefusedError(Reason.CONTENT_NOT_TEXT, f"the content of {where} is {kind_of(content)}")
    if found := _MARK.search(content):
        why = f"{where} has the character {found[0]!r} at {found.start()}, which marks messages here"
        raise RefusedError(Reason.CONTROL_CHARACTER, why)
    return content


def _part(where: str, part: Any) -> str:
    if isinstance(part, str):
        return part
    kind = str(part.get("type") or _untyped(part)) if isinstance(part, dict) else type(part).__name__
    if kind.startswith(SEEN):
        raise RefusedError(Reason.IMAGES, f"{where} has a part of the type {kind}, {UNSEEN}")
    if kind.startswith(CALLED):
        raise RefusedError(Reason.TOOL_CALLS, f"{where} has a part of the type {kind}")
    if kind.startswith(THOUGHT):
        raise RefusedError(Reason.REASONING, f"{where} has a part of the type {kind}, {UNTHOUGHT}")
    text = part.get("text") if isinstance(part, dict) and kind in TEXT else None
    if not isinstance(text, str):
        why = f"the content of {where} has a part that is no text, of the type {kind or None}"
        raise RefusedError(Reason.CONTENT_NOT_TEXT, why)
    return text


def _untyped(part: Mapping[str, Any]) -> str:
    names = (key.replace("_", "").lower() for key, value in part.items() if value)
    return next((UNTYPED[name] for name in names if name in UNTYPED), "")
