"""Conversations as trees of messages, of which one branch is read: that which ChatGPT showed last, or the one
that people ranked first in OpenAssistant. And what an export holds that was not shown as a message.
"""

from collections.abc import Mapping
from typing import Any

from pipeline.sources.source import Reason, RefusedError

# What is no text, by the types of parts that other exports have.
_TYPES = {
    "code": "tool_call",
    "execution_output": "tool_result",
    "image_asset_pointer": "image",
    "audio_asset_pointer": "audio",
}
_OF_PARTS = ("text", "multimodal_text")
# Notes beside the conversation, and the tool that writes some of them.
_UNSHOWN = ("thoughts", "reasoning_recap", "user_editable_context", "model_editable_context", "system_error")
_HIDDEN, _MEMORY = "is_visually_hidden_from_conversation", "bio"


def shown_messages(tree: Any, last: Any) -> list[dict[str, Any]]:
    """The messages from the first one to `last` that ChatGPT's page shows, without those of others than the
    user that are empty. Raises RefusedError.
    """
    if not isinstance(tree, Mapping) or not isinstance(last, str):
        raise RefusedError(Reason.NO_MESSAGES, "column 'mapping' holds no tree of messages")
    branch: list[dict[str, Any]] = []
    seen: set[str] = set()
    while isinstance(last, str) and last not in seen:
        seen.add(last)
        node = tree.get(last)
        if not isinstance(node, Mapping):
            raise RefusedError(Reason.NO_MESSAGES, f"column 'mapping' has no message {last!r}")
        if isinstance(message := node.get("message"), Mapping) and not _is_unshown(message):
            branch.append(_message(message))
        last = node.get("parent")
    return [one for one in reversed(branch) if one["role"] == "user" or any(one["content"])]


def best_answers(first: Any) -> list[dict[str, Any]]:
    """The messages from the first one, each followed by its best answer, to the last of the assistant. Raises
    RefusedError.
    """
    branch: list[dict[str, Any]] = []
    message = first
    while isinstance(message, Mapping):
        branch.append({"role": message.get("role"), "content": message.get("text")})
        replies = message.get("replies") or []
        answers = [one for one in replies if isinstance(one, Mapping) and not one.get("deleted")]
        message = min(answers, key=_rank, default=None)
    while branch and branch[-1]["role"] != "assistant":
        branch.pop()
    if not branch:
        raise RefusedError(Reason.NO_ANSWER, "column 'prompt' has no answer")
    return branch


def without_thoughts(messages: Any) -> Any:
    """The messages of Claude's export without what Claude thought before it answered."""
    if not isinstance(messages, list):
        return messages
    return [
        {**one, "content": [part for part in one["content"] if _mapping(part).get("type") != "thinking"]}
        if isinstance(one, Mapping) and isinstance(one.get("content"), list)
        else one
        for one in messages
    ]


def _rank(message: Mapping[str, Any]) -> float:
    rank = message.get("rank")
    return rank if isinstance(rank, int | float) else float("inf")


def _is_unshown(message: Mapping[str, Any]) -> bool:
    content, metadata = _mapping(message.get("content")), _mapping(message.get("metadata"))
    of_memory = _MEMORY in (_mapping(message.get("author")).get("name"), message.get("recipient"))
    return content.get("content_type") in _UNSHOWN or bool(metadata.get(_HIDDEN)) or of_memory


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    role = _mapping(message.get("author")).get("role")
    kind = _mapping(content).get("content_type")
    if role == "assistant" and message.get("recipient") not in (None, "all"):
        kind = "code"
    if not isinstance(content, Mapping) or kind not in _OF_PARTS:
        return {"role": role, "content": [{"type": _TYPES.get(str(kind), str(kind))}]}
    parts = content.get("parts")
    return {"role": role, "content": [*map(_part, parts if isinstance(parts, list) else [parts])]}


def _part(part: Any) -> Any:
    kind = str(part.get("content_type")) if isinstance(part, Mapping) else ""
    return {"type": _TYPES.get(kind, kind)} if kind else part
