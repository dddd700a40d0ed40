"""Conversations that cannot be learned from are set aside, and their neighbors arrive."""

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pipeline.sources.files import FilesConfig
from pipeline.sources.hub.dataset import HubConfig
from tests.pipeline.sources.formats.test_conversations import (
    ASSISTANT,
    BAD,
    BRIEF,
    CHAT,
    GOOD,
    PREFERENCES,
    USER,
    answer,
    chatml,
    exported,
    gemini,
)
from tests.pipeline.sources.reading import documents_and_rejects
from tests.rows import jsonl


def of_type(kind: str) -> dict[str, Any]:
    """ChatGPT's export of an answer whose content is of some type."""
    row = exported(("user", "Hi"), ("assistant", "Hey"))
    row["mapping"]["2"]["message"]["content"] = {"content_type": kind, "text": "x"}
    return row


BAD_CHATS: list[tuple[dict[str, Any], str, str]] = [
    ({}, "no_messages", "no 'messages', or 'conversations', or 'prompt' and 'completion' with content"),
    ({"messages": []}, "no_messages", "column 'messages' holds no list of messages"),
    ({"mapping": {"a": {}}, "current_node": "b"}, "no_messages", "column 'mapping' has no message 'b'"),
    ({"mapping": [1], "current_node": "b"}, "no_messages", "column 'mapping' holds no tree of messages"),
    (gemini({"text": "Hm.", "thought": True}, {"text": "Hey"}), "reasoning", "message 2"),
    (gemini({"functionCall": {"name": "f"}}), "tool_calls", "message 2 of 'contents'"),
    (gemini({"function_call": {"name": "f"}, "text": None}), "tool_calls", "message 2"),
    (gemini({"inlineData": {"mimeType": "image/png"}}), "images", "message 2"),
    ({"text": "Hi"}, "no_messages", "column 'text' holds no list of messages and no transcript"),
    ({"text": chatml(*BRIEF) + "<|endoftext|>"}, "content_not_text", "'text' is ChatML with text that is in"),
    ({"text": chatml(("narrator", "x"))}, "unknown_role", "'narrator'"),
    ({"text": chatml(("user to me", "x"))}, "unknown_role", "'user to me'"),
    (
        {"text": "So: <s>[INST] q [/INST] a"},
        "no_messages",
        "column 'text' holds no list of messages and no transcript",
    ),
    (
        {"text": "<|user|>\nq<|end|>\nso<|assistant|>\na<|end|>"},
        "content_not_text",
        "'text' is the markup of Phi-3 and Zephyr with text that is in no message",
    ),
    (of_type("code"), "tool_calls", "message 2"),
    ({"mapping": {"a": {}}, "current_node": "a"}, "no_messages", "'mapping' holds no list of messages"),
    (of_type("thoughts"), "no_answer", "no message is of the assistant"),
    ({"message_tree_id": "t", "prompt": {"text": "Hi", "role": "prompter"}}, "no_answer", "'prompt'"),
    (of_type("tether_quote"), "content_not_text", "message 2"),
    (of_type("image_asset_pointer"), "images", "message 2"),
    ({"messages": "[]"}, "no_messages", "holds no list"),
    ({"messages": "{}"}, "no_messages", "holds no list"),
    ({"messages": "[{'role': 'user'}]"}, "no_messages", "a text that is not a JSON list"),
    ({"messages": "Hi"}, "no_messages", "holds no list of messages and no transcript"),
    ({"messages": {"role": ["user", "assistant"], "content": ["q"]}}, "content_not_text", "2 of role, 1 of"),
    ({"messages": answer(content=" \n")}, "no_answer", "message 2 .* without text"),
    ({"prompt": "q", "completion": ""}, "no_answer", "message 1 of 'completion' .* without text"),
    (
        {"system": "s", "messages": [{"role": "system", "content": "t"}, USER, ASSISTANT]},
        "system_differs",
        "'system'",
    ),
    ({"system": {"a": 1}, "messages": [USER, ASSISTANT]}, "content_not_text", "column 'system'"),
    ({"instruction": "i", "output": "o", "history": [["q"]]}, "content_not_text", "no list of pairs"),
    ({"instruction": "i", "output": 5}, "no_messages", "column 'output' holds no list"),
    ({"prompt": "p", "completion": [USER, ASSISTANT]}, "prompt_differs", "begin with one of the user"),
    ({"messages": answer(reasoning_content="Hm.")}, "reasoning", "message 2 .* 'reasoning_content'"),
    ({"messages": answer(content=[{"type": "thinking", "thinking": "Hm."}])}, "reasoning", ""),
    ({"messages": answer(channel="analysis")}, "reasoning", "message 2 .* the channel 'analysis'"),
    ({"messages": answer(content=[{"type": "refusal"}])}, "content_not_text", "refusal"),
    (
        {"messages": [USER, ASSISTANT], "form": "("},
        "bad_form",
        "column 'form' is not a regular expression: missing",
    ),
    ({"messages": [USER, ASSISTANT], "form": 42}, "bad_form", "column 'form' holds a whole number"),
    ({"messages": [USER, ASSISTANT], "tools": [{"name": "f"}]}, "tool_calls", "column 'tools'"),
    (
        {"messages": [USER, {"role": "tool", "content": [{"type": "tool_result"}]}]},
        "tool_calls",
        "tool_result",
    ),
    ({"messages": [USER, {"role": "narrator", "content": ""}]}, "unknown_role", "message 2 .* 'narrator'"),
    ({"messages": [{"content": "x"}]}, "unknown_role", "role None"),
    ({"messages": [{"role": [1], "content": "x"}]}, "unknown_role", r"role \[1\]"),
    ({"messages": [{"role": "user", "content": 3}]}, "content_not_text", "message 1 .* is a whole number"),
    ({"messages": answer(content=None)}, "content_not_text", "is null"),
    ({"messages": ["Hi"]}, "content_not_text", "message 1 of 'messages' is a text"),
    ({"messages": [USER]}, "no_answer", "no message is of the assistant"),
    ({"messages": [{**USER, "content": "a\x1eb"}, ASSISTANT]}, "control_character", r"'\\x1e' at 1"),
    ({"messages": answer(tool_calls=[{}])}, "tool_calls", "message 2"),
    ({"conversations": [{"from": "function_call", "value": "{}"}]}, "tool_calls", "message 1"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "images", "message 1"),
    ({"messages": [USER, ASSISTANT], "image": "a.png"}, "images", "the row has an image"),
    ({"prompt": "a\ud800", "completion": "x"}, "lone_surrogate", ""),
]


BAD_PREFERENCES: list[tuple[dict[str, Any], str, str]] = [
    ({"prompt": "x"}, "no_messages", "no 'prompt' and 'chosen' and 'rejected', or 'chosen' and 'rejected'"),
    (
        {"instruction": "i", "completions": [{"response": "r", "overall_score": 7.0}] * 2},
        "no_messages",
        "of the rated `completions`, write two as `chosen` and `rejected` beside the question",
    ),
    ({"chosen": "x", "rejected": "y"}, "no_messages", "column 'chosen' holds no list of messages"),
    ({"prompt": "x", "chosen": "y", "rejected": "y"}, "chosen_equals_rejected", "the same"),
    ({"prompt": "x", "chosen": "Yes.", "rejected": "Yes. "}, "chosen_equals_rejected", "the same"),
    ({"prompt": "x", "chosen": "", "rejected": "y"}, "no_answer", "'chosen' is an answer without text"),
    (
        {"prompt": "x", "chosen": [USER, GOOD], "rejected": [USER, BAD]},
        "prompt_differs",
        "'prompt' is no part",
    ),
    ({"chosen": [GOOD], "rejected": [BAD]}, "no_common_beginning", "message 1 differs"),
    (
        {"chosen": [USER, GOOD], "rejected": [{**USER, "content": "Hey"}, BAD]},
        "no_common_beginning",
        "message 1 differs, before the answer: both need the same question",
    ),
    (
        {"chosen": [GOOD, USER, GOOD], "rejected": [GOOD, {**USER, "content": "Hey"}, BAD]},
        "no_common_beginning",
        "message 2 differs",
    ),
    (
        {"conversation_a": [USER, BAD], "conversation_b": [USER, GOOD], "winner": "tie (bothbad)"},
        "chosen_equals_rejected",
        "column 'winner' is 'tie .bothbad.', neither model_a nor model_b, so no answer is better",
    ),
    (
        {
            "input": {"messages": [USER], "tools": [{"type": "function"}]},
            "preferred_output": [GOOD],
            "non_preferred_output": [BAD],
        },
        "tool_calls",
        "column 'tools'",
    ),
    ({"chosen": [USER, GOOD, USER], "rejected": [USER, GOOD, USER, BAD]}, "no_answer", "common beginning"),
]


@pytest.mark.parametrize(
    ("format", "row", "reason", "why"),
    [("chat", *case) for case in BAD_CHATS] + [("preferences", *case) for case in BAD_PREFERENCES],
)
def test_a_row_that_cannot_be_learned_from_is_set_aside_and_its_neighbors_arrive(
    tmp_path: Path, format: str, row: dict[str, Any], reason: str, why: str
) -> None:
    good = CHAT["messages"] if format == "chat" else PREFERENCES["texts"]
    path = jsonl(tmp_path / "rows.jsonl", good, row, good)
    found, (reject,) = documents_and_rejects(path, format=format)
    assert len(found) == 2 and (reject.file, reject.row, str(reject.reason)) == ("rows.jsonl", 2, reason)
    assert re.search(why, reject.detail)


def test_settings_without_effect_are_refused() -> None:
    for settings in ({"text_column": "body"}, {"text_template": "{a}"}):
        with pytest.raises(ValidationError, match="has no effect with format: chat; leave it out"):
            FilesConfig.model_validate({"paths": ["a.jsonl"], "format": "chat", **settings})
    with pytest.raises(ValidationError, match="document_start has no effect"):
        HubConfig.model_validate({"name": "a/b", "format": "chat", "document_start": "#"})
