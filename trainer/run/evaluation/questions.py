"""The lines of a file of questions, and the messages in them."""

import json
from pathlib import Path
from typing import Any

from trainer.config import ChatIds
from trainer.config.base import whole_text
from trainer.system.errors import TrainerError, reason

SPEAKERS = set(ChatIds.model_fields) - {"end"}
ALSO_CALLED = {"developer": "system", "function": "tool"}  # in OpenAI's API
Messages = tuple[tuple[str, str], ...]  # role and content of each


def rows(path: Path) -> list[tuple[str, Any]]:
    """The place and the content of each line of JSON. Raises TrainerError for one that is none, or for a file
    without any.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")  # programs of Windows write a mark first
    except (OSError, UnicodeDecodeError) as error:
        raise TrainerError(f"{path}: cannot be read: {reason(error)}") from error
    found = []
    for place, line in ((f"{path}:{number}", line) for number, line in enumerate(lines, start=1)):
        if line.strip():
            try:
                found.append((place, json.loads(line)))
                whole_text(json.dumps(found[-1][1], ensure_ascii=False))
            except (ValueError, RecursionError) as error:
                raise TrainerError(f"{place}: is not JSON of whole texts: {error}") from None
    if not found:
        raise TrainerError(f"{path}: holds no items")
    return found


def messages(row: Any, place: str) -> Messages:
    """The messages of a row. Raises TrainerError."""
    listed = row.get("messages") if isinstance(row, dict) else None
    if not isinstance(listed, list) or not listed:
        raise TrainerError(f"{place}: `messages` must be a list of objects with `role` and `content`")
    found = []
    for number, one in enumerate(listed, start=1):
        role, content = (one.get("role"), one.get("content")) if isinstance(one, dict) else (None, None)
        known = ALSO_CALLED.get(role.lower(), role.lower()) if isinstance(role, str) else None
        if known not in SPEAKERS:
            known = ", ".join(sorted(SPEAKERS))
            raise TrainerError(f"{place}: message {number}: role must be one of {known}, not {_shown(role)}")
        if one.get("tool_calls"):
            raise TrainerError(
                f"{place}: message {number}: the model has not learned to call tools: leave out `tool_calls`"
            )
        found.append((known, _text(f"{place}: message {number}", content)))
    return tuple(found)


def unanswered(row: Any, place: str) -> Messages:
    """The messages of a row, of which the last has no answer yet. Raises TrainerError."""
    found = messages(row, place)
    if found[-1][0] == "assistant":
        raise TrainerError(
            f"{place}: the last message is the assistant's, so nothing is left to answer: leave it out"
        )
    return found


def _text(where: str, content: Any) -> str:
    """A content, which may be in parts, as the chat template of an export reads it. Raises TrainerError."""
    parts = [content] if isinstance(content, str | dict) else content or []
    if not isinstance(parts, list):
        raise TrainerError(f"{where}: content must be a text or parts of text, not {_shown(content)}")
    texts = list[str]()
    for part in parts:
        text = part.get("text") if isinstance(part, dict) else part
        if not isinstance(text, str):
            raise TrainerError(f"{where}: the model reads text only: leave out the part {_shown(part)}")
        texts.append(text)
    return "".join(texts)


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:40]
