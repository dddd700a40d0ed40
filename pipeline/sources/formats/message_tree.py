"""Conversations as ChatGPT exports them: a tree of messages, of which one branch was shown last."""

from collections.abc import Mapping
from typing import Any

from pipeline.sources.formats.unlearnable import BadConversationError
from pipeline.sources.source import Reason

# What is no text, by the types of parts that other exports have.
_TYPES = {
    "code": "tool_call",
    "execution_output": "tool_result",
    "thoughts": "thinking",
    "reasoning_recap": "thinking",
    "image_asset_pointer": "image",
    "audio_asset_pointer": "audio",
}
_OF_PARTS = ("text", "multimodal_text")


def shown_messages(column: str, tree: Any, last: Any) -> list[dict[str, Any]]:
    """The messages from the first one to `last`, without those of the system that are empty. Raises
    BadConversationError.
    """
    if not isinstance(tree, Mapping) or not isinstance(last, str):
        raise BadConversationError(Reason.NO_MESSAGES, f"column {column!r} holds no tree of messages")
    branch: list[dict[str, Any]] = []
    seen: set[str] = set()
    while isinstance(last, str) and last not in seen:
        seen.add(last)
        node = tree.get(last)
        if not isinstance(node, Mapping):
            raise BadConversationError(Reason.NO_MESSAGES, f"column {column!r} has no message {last!r}")
        if isinstance(message := node.get("message"), Mapping):
            branch.append(_message(message))
        last = node.get("parent")
    return [one for one in reversed(branch) if one["role"] != "system" or any(one["content"])]


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    author, content = message.get("author"), message.get("content")
    role = author.get("role") if isinstance(author, Mapping) else None
    kind = content.get("content_type") if isinstance(content, Mapping) else None
    if not isinstance(content, Mapping) or kind not in _OF_PARTS:
        return {"role": role, "content": [{"type": _TYPES.get(str(kind), str(kind))}]}
    parts = content.get("parts")
    return {"role": role, "content": [*map(_part, parts)] if isinstance(parts, list) else parts}


def _part(part: Any) -> Any:
    kind = str(part.get("content_type")) if isinstance(part, Mapping) else ""
    return {"type": _TYPES.get(kind, kind)} if kind else part
