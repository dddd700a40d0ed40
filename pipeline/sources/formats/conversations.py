"""Conversations and preferences in rows, in the forms that data sets have, as texts of marked messages."""

from collections.abc import Sequence
from typing import Any, Literal

from pipeline.sources.source import Reason
from pipeline.store.params import CONTENT, MARKS, MESSAGE, PAIR, ROLES

Format = Literal["text", "chat", "preferences"]
# The columns of each form, the first that a row has decides.
FORMS: dict[str, tuple[tuple[str, ...], ...]] = {
    "text": (),
    "chat": (("messages",), ("conversations",), ("prompt", "completion")),
    "preferences": (("prompt", "chosen", "rejected"), ("chosen", "rejected")),
}
OTHER_NAMES = {"human": "user", "gpt": "assistant"}  # of roles, in ShareGPT
Message = tuple[str, str]  # role, content


class BadConversationError(Exception):
    """A row that cannot be learnt from; the message says which message is wrong."""

    def __init__(self, reason: Reason, why: str):
        super().__init__(why)
        self.reason = reason


def conversation(format: Format, row: dict[str, Any]) -> str:
    """The text of a row, as `pipeline.store.params` says. Raises BadConversationError."""
    held = (form for form in FORMS[format] if all(row.get(name) is not None for name in form))
    form = next(held, None)
    if form is None:
        raise BadConversationError(Reason.NO_MESSAGES, f"no {forms_of(format)} with content")
    if row.get("image") or row.get("images"):
        raise BadConversationError(Reason.IMAGES, "the row has an image, which a model of text cannot see")
    if format == "preferences":
        return PAIR.join(map(_text, _preference(form, row)))
    roles = (None,) if len(form) == 1 else ("user", "assistant")
    said = [one for name, role in zip(form, roles, strict=True) for one in _messages(name, row[name], role)]
    if not _answers(said):
        raise BadConversationError(Reason.NO_ANSWER, "no message is of the assistant")
    return _text(said)


def forms_of(format: Format) -> str:
    """The columns that a row of this format has, in words."""
    return ", or ".join(" and ".join(map(repr, form)) for form in FORMS[format])


def _text(messages: Sequence[Message]) -> str:
    return "".join(f"{MESSAGE}{role}{CONTENT}{content}" for role, content in messages)


def _answers(messages: Sequence[Message]) -> bool:
    return any(role == "assistant" for role, _ in messages)


def _preference(form: Sequence[str], row: dict[str, Any]) -> list[list[Message]]:
    """The better conversation and the worse one. A prompt stands before both, unless they repeat it."""
    prompt = _messages("prompt", row["prompt"], "user") if "prompt" in form else []
    role = "assistant" if prompt else None
    both = [_messages(name, row[name], role) for name in ("chosen", "rejected")]
    both = [said if prompt and said[: len(prompt)] == prompt else prompt + said for said in both]
    chosen, rejected = both
    if chosen == rejected:
        raise BadConversationError(Reason.CHOSEN_EQUALS_REJECTED, "'chosen' and 'rejected' are the same")
    pairs = enumerate(zip(chosen, rejected, strict=False))
    common = next((place for place, (one, other) in pairs if one != other), min(map(len, both)))
    ends = [said[common:] for said in both]
    if not all(map(_answers, ends)):
        raise BadConversationError(Reason.NO_ANSWER, "nothing is answered after the common beginning")
    if not common or any(end[0][0] != "assistant" for end in ends):
        why = f"message {common + 1} differs, before the answer: both need the same question"
        raise BadConversationError(Reason.NO_COMMON_BEGINNING, why)
    return both


def _messages(column: str, value: Any, role: str | None) -> list[Message]:
    """The messages in a column. A text alone is the message of `role`, if there is one."""
    if isinstance(value, str) and role is not None:
        value = [{"role": role, "content": value}]
    if isinstance(value, dict) and all(isinstance(one, list) for one in value.values()):
        value = [
            dict(zip(value, one, strict=False)) for one in zip(*value.values(), strict=False)
        ]  # by column
    if not isinstance(value, list) or not value:
        raise BadConversationError(Reason.NO_MESSAGES, f"column {column!r} holds no list of messages")
    return [_message(f"message {number} of {column!r}", one) for number, one in enumerate(value, start=1)]


def _message(where: str, message: Any) -> Message:
    if not isinstance(message, dict):
        why = f"{where} is a {type(message).__name__}, no object with `role` and `content`"
        raise BadConversationError(Reason.CONTENT_NOT_TEXT, why)
    named = message.get("role") or message.get("from")
    role = OTHER_NAMES.get(named, named) if isinstance(named, str) else None
    if message.get("tool_calls") or message.get("function_call") or role == "function_call":
        raise BadConversationError(Reason.TOOL_CALLS, f"{where} calls a tool")
    if role not in ROLES:
        raise BadConversationError(
            Reason.UNKNOWN_ROLE, f"{where} has the role {named!r}, none of {', '.join(ROLES)}"
        )
    content = message.get("content", message.get("value"))
    if isinstance(content, list) and any(
        isinstance(part, dict) and str(part.get("type")).startswith("image") for part in content
    ):
        raise BadConversationError(Reason.IMAGES, f"{where} has an image, which a model of text cannot see")
    if not isinstance(content, str):
        raise BadConversationError(
            Reason.CONTENT_NOT_TEXT, f"the content of {where} is a {type(content).__name__}"
        )
    for mark in MARKS:
        if mark in content:
            why = f"{where} has the character {mark!r} at {content.index(mark)}, which marks messages here"
            raise BadConversationError(Reason.CONTROL_CHARACTER, why)
    return role, content
