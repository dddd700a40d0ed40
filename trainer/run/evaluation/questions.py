"""The lines of a file of questions, and the messages in them."""

import json
from pathlib import Path
from typing import Any

from trainer.config import ChatIds
from trainer.config.base import whole_text
from trainer.system.errors import TrainerError, reason

SPEAKERS = set(ChatIds.model_fields) - {"end"}
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
        if not isinstance(role, str) or role not in SPEAKERS:
            known = ", ".join(sorted(SPEAKERS))
            raise TrainerError(f"{place}: message {number}: role must be one of {known}, not {_shown(role)}")
        if not isinstance(content, str):
            raise TrainerError(f"{place}: message {number}: content must be a text, not {_shown(content)}")
        found.append((role, content))
    return tuple(found)


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:40]
