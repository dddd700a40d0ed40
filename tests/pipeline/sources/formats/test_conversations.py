"""Conversations and preferences in all their forms, and rows that are none: set aside with a reason."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from pipeline.sources.files import FilesConfig
from pipeline.sources.hub.dataset import HubConfig
from tests.pipeline.sources.reading import documents_and_rejects, read

USER, ASSISTANT = {"role": "user", "content": "Hi\n🙂"}, {"role": "assistant", "content": ""}
SAID = "\x1euser\x1fHi\n🙂\x1eassistant\x1f"
GOOD, BAD = {"role": "assistant", "content": "Good."}, {"role": "assistant", "content": "Bad."}
CHAT: dict[str, dict[str, Any]] = {
    "messages": {"messages": [USER, ASSISTANT], "prompt": "of no use here"},
    "ShareGPT": {"conversations": [{"from": "human", "value": "Hi\n🙂"}, {"from": "gpt", "value": ""}]},
    "one column for each key": {"messages": {"role": ["user", "assistant"], "content": ["Hi\n🙂", ""]}},
    "texts": {"messages": None, "prompt": "Hi\n🙂", "completion": ""},
    "lists": {"prompt": [USER], "completion": [ASSISTANT]},
}
CHOSEN_AND_REJECTED = "\x1euser\x1fHi\n🙂\x1eassistant\x1fGood.\x1d\x1euser\x1fHi\n🙂\x1eassistant\x1fBad."
PREFERENCES: dict[str, dict[str, Any]] = {
    "texts": {"prompt": "Hi\n🙂", "chosen": "Good.", "rejected": "Bad."},
    "lists": {"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]},
    "a text and lists": {"prompt": "Hi\n🙂", "chosen": [GOOD], "rejected": [BAD]},
    "whole conversations": {"chosen": [USER, GOOD], "rejected": [USER, BAD]},
    "and the prompt": {"prompt": "Hi\n🙂", "chosen": [USER, GOOD], "rejected": [USER, BAD]},
}


def written(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("form", CHAT)
def test_a_conversation_is_read_in_each_form(tmp_path: Path, form: str) -> None:
    row = {"id": "a", **CHAT[form], "score": 3}
    (found,), rejects = read(written(tmp_path / "rows.jsonl", row), format="chat")
    assert (found["text"], found["metadata"], rejects) == (SAID, '{"score":3}', [])


@pytest.mark.parametrize("form", PREFERENCES)
def test_a_preference_is_read_in_each_form(tmp_path: Path, form: str) -> None:
    (found,), rejects = read(written(tmp_path / "rows.jsonl", PREFERENCES[form]), format="preferences")
    assert (found["text"], rejects) == (CHOSEN_AND_REJECTED, [])


def test_parquet_and_csv_hold_them_too(tmp_path: Path) -> None:
    rows = [{"messages": [{**USER, "tool_calls": None}, ASSISTANT], "n": 1}] * 3
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    pq.write_table(pa.table({"text": ["none"]}), tmp_path / "texts.parquet")
    (tmp_path / "rows.csv").write_text('prompt,completion\n"Hi\n🙂",\n')
    found, rejects = documents_and_rejects(tmp_path / "*.*", format="chat")
    assert [row["text"] for row in found] == [SAID] * 4
    assert {row["metadata"] for row in found} == {'{"n":1}', None}
    assert [(one.file, str(one.reason)) for one in rejects] == [("texts.parquet", "no_text")]
    assert "no column 'messages', or 'conversations', or 'prompt' and 'completion'" in rejects[0].detail


def test_a_whole_file_of_plain_text_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("Plain text.")
    assert read(tmp_path / "notes.md", format="chat") == ([], [(None, "unsupported_format")])


BAD_CHATS: list[tuple[dict[str, Any], str, str]] = [
    ({}, "no_messages", "no 'messages', or 'conversations', or 'prompt' and 'completion' with content"),
    ({"messages": []}, "no_messages", "column 'messages' holds no list of messages"),
    ({"messages": "[]"}, "no_messages", "holds no list"),
    ({"messages": [USER, {"role": "narrator", "content": ""}]}, "unknown_role", "message 2 .* 'narrator'"),
    ({"messages": [{"content": "x"}]}, "unknown_role", "role None"),
    ({"messages": [{"role": [1], "content": "x"}]}, "unknown_role", r"role \[1\]"),
    ({"messages": [{"role": "user", "content": 3}]}, "content_not_text", "message 1 .* is a int"),
    ({"messages": [USER, {"role": "assistant", "content": None}]}, "content_not_text", "NoneType"),
    ({"messages": ["Hi"]}, "content_not_text", "message 1 of 'messages' is a str"),
    ({"messages": [USER]}, "no_answer", "no message is of the assistant"),
    ({"messages": [{**USER, "content": "a\x1eb"}, ASSISTANT]}, "control_character", r"'\\x1e' at 1"),
    ({"messages": [USER, {**ASSISTANT, "tool_calls": [{}]}]}, "tool_calls", "message 2"),
    ({"conversations": [{"from": "function_call", "value": "{}"}]}, "tool_calls", "message 1"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "images", "message 1"),
    ({"messages": [USER, ASSISTANT], "image": "a.png"}, "images", "the row has an image"),
    ({"prompt": "a\ud800", "completion": "x"}, "lone_surrogate", ""),
]
BAD_PREFERENCES: list[tuple[dict[str, Any], str, str]] = [
    ({"prompt": "x"}, "no_messages", "no 'prompt' and 'chosen' and 'rejected', or 'chosen' and 'rejected'"),
    ({"chosen": "x", "rejected": "y"}, "no_messages", "column 'chosen' holds no list of messages"),
    ({"prompt": "x", "chosen": "y", "rejected": "y"}, "chosen_equals_rejected", "the same"),
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
    ({"chosen": [USER, GOOD, USER], "rejected": [USER, GOOD, USER, BAD]}, "no_answer", "common beginning"),
]


@pytest.mark.parametrize(
    ("format", "row", "reason", "why"),
    [("chat", *case) for case in BAD_CHATS] + [("preferences", *case) for case in BAD_PREFERENCES],
)
def test_a_row_that_cannot_be_learnt_from_is_set_aside_and_its_neighbours_arrive(
    tmp_path: Path, format: str, row: dict[str, Any], reason: str, why: str
) -> None:
    good = CHAT["messages"] if format == "chat" else PREFERENCES["texts"]
    path = written(tmp_path / "rows.jsonl", good, row, good)
    found, (reject,) = documents_and_rejects(path, format=format)
    assert len(found) == 2 and (reject.file, reject.row, str(reject.reason)) == ("rows.jsonl", 2, reason)
    assert re.search(why, reject.detail)


def test_settings_without_effect_are_refused() -> None:
    for settings in ({"text_column": "body"}, {"text_template": "{a}"}):
        with pytest.raises(ValidationError, match="has no effect with format: chat; leave it out"):
            FilesConfig.model_validate({"paths": ["a.jsonl"], "format": "chat", **settings})
    with pytest.raises(ValidationError, match="document_start has no effect"):
        HubConfig.model_validate({"name": "a/b", "format": "chat", "document_start": "#"})
    assert "format" not in FilesConfig(paths=("a.jsonl",)).model_dump()
