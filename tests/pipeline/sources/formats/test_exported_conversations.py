"""What the exports of chat programs hold beside the messages."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.sources.files import FilesConfig
from pipeline.sources.formats.conversations import conversation
from pipeline.store.manifest import breakdown
from pipeline.store.store import Store
from tests.pipeline.sources.formats.test_conversations import ASSISTANT, SAID, USER, exported
from tests.pipeline.sources.reading import read
from tests.pipeline.steps.corpora import ENGINE
from tests.pipeline.steps.make import collect
from tests.rows import jsonl


def test_keys_of_messages_that_are_not_read_are_named_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    talk = {"messages": [{**USER, "name": "Ann", "refusal": None}, {**ASSISTANT, "audio_id": 3, "weight": 1}]}
    path = jsonl(tmp_path / "rows.jsonl", {"id": "a", **talk}, {"id": "b", "messages": [USER, ASSISTANT]})
    config = FilesConfig(paths=(str(path),), format="chat")
    version = collect(Store(tmp_path / "store"), ENGINE, "talks", config, 20_000)
    assert breakdown(version.counts, "unread_message_keys") == {"audio_id": 1, "name": 1}
    assert "'audio_id' in 1, 'name' in 1" in caplog.text
    repeated = jsonl(tmp_path / "second.jsonl", {"id": "b", **talk}, {"id": "c", **talk})
    both = config.model_copy(update={"paths": (str(path), str(repeated))})
    version = collect(Store(tmp_path / "store"), ENGINE, "talks", both, 20_000)
    assert breakdown(version.counts, "unread_message_keys") == {"audio_id": 2, "name": 2}  # of a and c
    found, _ = read(path, format="chat", metadata_columns=())
    assert [row["metadata"] for row in found] == ['{"unread_message_keys":["audio_id","name"]}', None]


CONTEXT = {"content_type": "user_editable_context", "user_profile": "I bake.", "user_instructions": "Brief."}


HIDDEN = {"is_visually_hidden_from_conversation": True}


@pytest.mark.parametrize(
    "unshown",
    [
        {"author": {"role": "user"}, "content": CONTEXT},
        {"author": {"role": "assistant"}, "content": {"content_type": "model_editable_context"}},
        {"author": {"role": "assistant"}, "content": {"content_type": "thoughts", "thoughts": [{}]}},
        {"author": {"role": "assistant"}, "content": {"content_type": "reasoning_recap", "content": "5 s"}},
        {"author": {"role": "assistant"}, "content": {"content_type": "text", "parts": [""]}},
        {
            "author": {"role": "system"},
            "content": {"content_type": "text", "parts": ["S"]},
            "metadata": HIDDEN,
        },
        {
            "author": {"role": "assistant"},
            "recipient": "bio",
            "content": {"content_type": "text", "parts": ["x"]},
        },
        {
            "author": {"role": "tool", "name": "bio"},
            "content": {"content_type": "text", "parts": ["Updated"]},
        },
    ],
)
@pytest.mark.parametrize("place", [1, 2])
def test_what_chatgpt_did_not_show_is_left_out_and_the_answer_is_read(
    unshown: dict[str, Any], place: int
) -> None:
    """An export of somebody with custom instructions was refused as a whole."""
    row = exported(("user", "Hi\n🙂"), ("assistant", "Hey"))
    tree = row["mapping"]
    tree["more"] = {"message": unshown, "parent": tree[str(place)]["parent"]}
    tree[str(place)]["parent"] = "more"
    assert conversation("chat", row) == SAID


def test_what_chatgpt_said_to_a_tool_is_no_answer(tmp_path: Path) -> None:
    row = exported(("user", "Hi"), ("assistant", "a cat in oil"))
    row["mapping"]["2"]["message"]["recipient"] = "dalle.text2im"
    assert read(jsonl(tmp_path / "rows.jsonl", row), format="chat") == ([], [(1, "tool_calls")])


def test_what_claude_thought_is_left_out_and_the_answer_is_read() -> None:
    parts = [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Hey"}]
    said = [{"sender": "human", "text": "Hi\n🙂"}, {"sender": "assistant", "text": "Hey", "content": parts}]
    assert conversation("chat", {"chat_messages": said}) == SAID


def test_of_a_tree_of_openassistant_the_best_answers_are_read() -> None:
    def reply(role: str, text: str, *replies: Any, **more: Any) -> dict[str, Any]:
        return {"message_id": text, "role": role, "text": text, "replies": list(replies), **more}

    best = reply("assistant", "Hey", reply("prompter", "unanswered"), rank=0)
    others = [reply("assistant", "worse", rank=1), reply("assistant", "gone", rank=-1, deleted=True)]
    row = {"message_tree_id": "t", "prompt": reply("prompter", "Hi\n🙂", *others, best, None)}
    assert conversation("chat", row) == SAID
