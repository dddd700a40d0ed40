"""Conversations and preferences in all their forms, and rows that are none: set aside with a reason."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from pipeline.sources import open_source
from pipeline.sources.files import FilesConfig
from pipeline.sources.formats.conversations import conversation
from pipeline.sources.hub.dataset import HubConfig
from pipeline.store.manifest import breakdown
from pipeline.store.store import Store
from tests.pipeline.sources.reading import documents_and_rejects, read
from tests.pipeline.steps.corpora import ENGINE
from tests.pipeline.steps.make import collect
from tests.rows import jsonl

USER, ASSISTANT = {"role": "user", "content": "Hi\n🙂"}, {"role": "assistant", "content": "Hey"}
SAID = "\x1euser\x1fHi\n🙂\x1eassistant\x1fHey"
GOOD, BAD = {"role": "assistant", "content": "Good."}, {"role": "assistant", "content": "Bad."}
BRIEF = [("system", "Be brief."), ("user", "q"), ("assistant", "a")]


def answer(**changes: Any) -> list[dict[str, Any]]:
    """A question, and an answer with these keys changed."""
    return [USER, ASSISTANT | changes]


def shared(*turns: tuple[str, str]) -> list[dict[str, str]]:
    """Turns in the form of ShareGPT."""
    return [{"from": who, "value": what} for who, what in turns]


def gemini(*parts: dict[str, Any]) -> dict[str, Any]:
    """Gemini's form of a question, and of an answer in parts."""
    asked = {"role": "user", "parts": [{"text": "Hi\n"}, {"text": "🙂"}]}
    return {"contents": [asked, {"role": "model", "parts": [*parts]}]}


def chatml(*turns: tuple[str, str]) -> str:
    return "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns)


def exported(*turns: tuple[str, str]) -> dict[str, Any]:
    """Turns as ChatGPT exports them: behind an empty one of the system, and beside answers that were asked
    for again.
    """
    tree: dict[str, Any] = {"root": {"message": None, "parent": None, "children": ["0"]}}
    for place, (role, text) in enumerate([("system", ""), *turns]):
        content = {"content_type": "text", "parts": [text]}
        parent = str(place - 1) if place else "root"
        tree[str(place)] = {"message": {"author": {"role": role}, "content": content}, "parent": parent}
        tree[f"other {place}"] = tree[str(place)] | {"message": {"author": {"role": "tool"}}}
    return {"mapping": tree, "current_node": str(len(turns))}


def of_type(kind: str) -> dict[str, Any]:
    """ChatGPT's export of an answer whose content is of some type."""
    row = exported(("user", "Hi"), ("assistant", "Hey"))
    row["mapping"]["2"]["message"]["content"] = {"content_type": kind, "text": "x"}
    return row


CHAT: dict[str, dict[str, Any]] = {
    "messages": {"messages": [USER, ASSISTANT], "prompt": "of no use here"},
    "ShareGPT": {"conversations": shared(("human", "Hi\n🙂"), ("gpt", "Hey"))},
    "one column for each key": {"messages": {"role": ["user", "assistant"], "content": ["Hi\n🙂", "Hey"]}},
    "texts": {"messages": None, "prompt": "Hi\n🙂", "completion": "Hey"},
    "lists": {"prompt": [USER], "completion": [ASSISTANT]},
    "a list that repeats the prompt": {"prompt": "hi 🙂 ", "completion": [USER, ASSISTANT]},
    "an empty list before texts": {"messages": [], "prompt": "Hi\n🙂", "completion": "Hey"},
    "JSON text": {"messages": json.dumps([USER, ASSISTANT])},
    "parts of text": {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Hi\n"}, {"type": "text", "text": "🙂"}]},
            {"role": "model", "content": {"type": "output_text", "text": "Hey"}},
        ]
    },
    "other names of roles": {"conversations": shared(("User", "Hi\n🙂"), ("chatgpt", "Hey"))},
    "a transcript": {"messages": "\n\nHuman: Hi\n🙂\n\nAssistant: Hey"},
    "Alpaca": {"instruction": "Hi\n🙂", "input": "", "output": "Hey", "history": []},
    "Alpaca with capitals": {"Instruction": "Hi\n🙂", "Input": "", "Output": "Hey"},
    "input and output": {"input": "Hi\n🙂", "output": "Hey"},
    "user and assistant": {"user": "Hi\n🙂", "assistant": "Hey"},
    "UltraChat": {"data": ["Hi\n🙂", "Hey"]},
    "speakers": {"dialogue": [{"speaker": "user", "text": "Hi\n🙂"}, {"speaker": "bot", "utterance": "Hey"}]},
    "Open WebUI": {"chat": {"title": "Hi", "messages": [USER, ASSISTANT]}},
    "a turn in each object": {"conversation": [{"human": "Hi\n🙂", "assistant": "Hey"}]},
    "XTuner": {"conversation": [{"system": "", "input": "Hi\n🙂", "output": "Hey"}]},
    "Dolly": {"instruction": "Hi\n🙂", "context": "", "response": "Hey"},
    "question and answer": {"question": "Hi\n🙂", "answer": "Hey"},
    "WildChat": {"conversation": [USER, ASSISTANT | {"language": None}]},
    "Claude's export": {
        "chat_messages": [
            {
                "sender": "human",
                "text": "Hi\n🙂",
                "content": [{"type": "text", "text": "Hi\n🙂"}],
                "files": [],
            },
            {"sender": "assistant", "text": "Hey", "content": [{"type": "text", "text": "Hey"}]},
        ]
    },
    "Gemini": gemini({"text": "He", "thought": False, "functionCall": None}, {"text": "y"}),
    "ChatML in a text": {"text": chatml(("user", "Hi\n🙂"), ("assistant", "Hey")), "prompt": None},
    "ChatML that is not ended": {"text": "<|im_start|>user\nHi\n🙂<|im_start|>assistant\nHey"},
    "a transcript in a text": {"text": "\n\nHuman: Hi\n🙂\n\nAssistant: Hey"},
    "Llama 3 in a text": {
        "text": "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi\n🙂<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nHey<|eot_id|>"
    },
    "Gemma in a text": {
        "text": "<bos><start_of_turn>user\nHi\n🙂<end_of_turn>\n<start_of_turn>model\nHey<end_of_turn>\n"
    },
    "Zephyr in a text": {"text": "<|user|>\nHi\n🙂</s>\n<|assistant|>\nHey</s>\n"},
    "Phi-3 in a text": {"text": "<|user|>\nHi\n🙂<|end|>\n<|assistant|>\nHey<|end|>\n<|endoftext|>"},
    "Llama 2 in a text": {"text": "<s>[INST] Hi\n🙂 [/INST] Hey </s>"},
    "Guanaco in a text": {"text": "### Human: Hi\n🙂### Assistant: Hey"},
    "Guanaco in lines": {"text": "### Human: Hi\n🙂\n\n### Assistant: Hey\n"},
    "ChatGPT's export": exported(("user", "Hi\n🙂"), ("assistant", "Hey")),
}
# What else is in a conversation: the row, and its messages.
BESIDE: dict[str, tuple[dict[str, Any], list[tuple[str, str]]]] = {
    "a system prompt": (
        {"system": "Be brief.", "conversations": shared(("human", "q"), ("gpt", "a"))},
        BRIEF,
    ),
    "one that the messages repeat": (
        {
            "system_prompt": "Be brief. ",
            "conversations": shared(("developer", "Be brief."), ("user", "q"), ("assistant", "a")),
        },
        BRIEF,
    ),
    "one of Orca": ({"system_prompt": "Be brief.", "question": "q", "response": "a"}, BRIEF),
    "one of Gemini": (
        {
            "systemInstruction": {"role": "system", "parts": [{"text": "Be brief."}]},
            "contents": [
                {"role": "user", "parts": [{"text": "q"}]},
                {"role": "model", "parts": [{"text": "a"}]},
            ],
        },
        BRIEF,
    ),
    "one of ChatML": ({"text": chatml(*BRIEF)}, BRIEF),
    "a prompt in ChatML": (
        {"prompt": chatml(*BRIEF[:2]) + "<|im_start|>assistant\n", "completion": "a<|im_end|>\n"},
        BRIEF,
    ),
    "instructions and turns of Llama 2": (
        {"text": "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nq [/INST] a </s><s>[INST] r [/INST] b [1] </s>"},
        [*BRIEF, ("user", "r"), ("assistant", "b [1]")],
    ),
    "a prompt in Llama 3": (
        {
            "prompt": "<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nq<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
            "completion": "a<|eot_id|>",
        },
        BRIEF,
    ),
    "a prompt in Llama 2": ({"prompt": "[INST] q [/INST]", "completion": "a"}, BRIEF[1:]),
    "headings in a prompt": (
        {"prompt": "### Human: history\nSum up.", "completion": "a"},
        [("user", "### Human: history\nSum up."), ("assistant", "a")],
    ),
    "an answer about marks": (
        {"prompt": "q", "completion": "It is <|im_start|>user\nHi<|im_end|>"},
        [("user", "q"), ("assistant", "It is <|im_start|>user\nHi<|im_end|>")],
    ),
    "what a tool said": (
        {"conversations": shared(("human", "q"), ("observation", "21"), ("gpt", "a"))},
        [("user", "q"), ("tool", "21"), ("assistant", "a")],
    ),
    "the input of Alpaca": (
        {"instruction": "Sum up.", "input": "A text.", "output": "a", "history": [["q", "b"]]},
        [("user", "q"), ("assistant", "b"), ("user", "Sum up.\n\nA text."), ("assistant", "a")],
    ),
    "the context of Dolly": (
        {"instruction": "Sum up.", "context": "A text.", "response": "a"},
        [("user", "Sum up.\n\nA text."), ("assistant", "a")],
    ),
    "turns of a transcript": (
        {"messages": "Human: q\n\nAssistant: a\n\nmore\n\nHuman: r\n\nAssistant: b"},
        [("user", "q"), ("assistant", "a\n\nmore"), ("user", "r"), ("assistant", "b")],
    ),
    "a prompt that is a transcript": (
        {"prompt": "\n\nHuman: q\n\nAssistant:", "completion": " a"},
        [("user", "q"), ("assistant", " a")],
    ),
    "a list that goes on with the prompt": (
        {
            "prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}],
            "completion": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "a"}],
        },
        [("system", "s"), ("user", "Q"), ("assistant", "a")],
    ),
}
CHOSEN_AND_REJECTED = "\x1euser\x1fHi\n🙂\x1eassistant\x1fGood.\x1d\x1euser\x1fHi\n🙂\x1eassistant\x1fBad."
PREFERENCES: dict[str, dict[str, Any]] = {
    "texts": {"prompt": "Hi\n🙂", "chosen": "Good.", "rejected": "Bad."},
    "lists": {"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]},
    "a text and lists": {"prompt": "Hi\n🙂", "chosen": [GOOD], "rejected": [BAD]},
    "whole conversations": {"chosen": [USER, GOOD], "rejected": [USER, BAD]},
    "and the prompt": {"prompt": "Hi\n🙂", "chosen": [USER, GOOD], "rejected": [USER, BAD]},
    "and the prompt in another spelling": {
        "prompt": " hi 🙂",
        "chosen": [USER, GOOD],
        "rejected": [USER, BAD],
    },
    "transcripts": {
        "chosen": "\n\nHuman: Hi\n🙂\n\nAssistant: Good.",
        "rejected": "\n\nHuman: Hi\n🙂\n\nAssistant: Bad.",
    },
    "transcripts that repeat the prompt": {
        "prompt": "\n\nHuman: Hi\n🙂\n\nAssistant:",
        "chosen": "\n\nHuman: Hi\n🙂\n\nAssistant: Good.",
        "rejected": "\n\nHuman: Hi\n🙂\n\nAssistant: Bad.",
    },
    "ChatML": {
        "prompt": chatml(("user", "Hi\n🙂")) + "<|im_start|>assistant\n",
        "chosen": "Good.<|im_end|>",
        "rejected": "Bad.<|im_end|>",
    },
    "whole conversations in ChatML": {
        "chosen": chatml(("user", "Hi\n🙂"), ("assistant", "Good.")),
        "rejected": chatml(("user", "Hi\n🙂"), ("assistant", "Bad.")),
    },
    "a question": {"question": "Hi\n🙂", "chosen": "Good.", "rejected": "Bad."},
    "an instruction": {"instruction": "Hi\n🙂", "chosen": [GOOD], "rejected": [BAD]},
    "a conversation and two messages": {
        "conversations": [{"from": "human", "value": "Hi\n🙂"}],
        "chosen": {"from": "gpt", "value": "Good."},
        "rejected": {"from": "ai", "value": "Bad."},
    },
    "a title beside whole conversations": {
        "question": "Smileys",
        "chosen": [USER, GOOD],
        "rejected": [USER, BAD],
    },
    "OpenAI": {
        "input": {"messages": [USER], "tools": [], "parallel_tool_calls": True},
        "preferred_output": [GOOD],
        "non_preferred_output": [BAD],
    },
    "SHP": {"history": "Hi\n🙂", "human_ref_A": "Bad.", "human_ref_B": "Good.", "labels": 0},
    "SHP in CSV": {"history": "Hi\n🙂", "human_ref_A": "Good.", "human_ref_B": "Bad.", "labels": "1"},
    "PKU-SafeRLHF": {
        "prompt": "Hi\n🙂",
        "response_0": "Bad.",
        "response_1": "Good.",
        "better_response_id": 1.0,
    },
    "Chatbot Arena": {"conversation_a": [USER, BAD], "conversation_b": [USER, GOOD], "winner": "model_b"},
    "JSON text": {"prompt": "Hi\n🙂", "chosen": json.dumps([GOOD]), "rejected": json.dumps([BAD])},
}


@pytest.mark.parametrize("form", CHAT)
def test_a_conversation_is_read_in_each_form(tmp_path: Path, form: str) -> None:
    row = {"id": "a", **CHAT[form], "score": 3}
    (found,), rejects = read(jsonl(tmp_path / "rows.jsonl", row), format="chat")
    assert (found["text"], found["metadata"], rejects) == (SAID, '{"score":3}', [])


@pytest.mark.parametrize("form", PREFERENCES)
def test_a_preference_is_read_in_each_form(tmp_path: Path, form: str) -> None:
    (found,), rejects = read(jsonl(tmp_path / "rows.jsonl", PREFERENCES[form]), format="preferences")
    assert (found["text"], rejects) == (CHOSEN_AND_REJECTED, [])


@pytest.mark.parametrize("what", BESIDE)
def test_what_stands_beside_the_messages_is_read_too(tmp_path: Path, what: str) -> None:
    row, said = BESIDE[what]
    (found,), rejects = read(jsonl(tmp_path / "rows.jsonl", row), format="chat")
    expected = "".join(f"\x1e{role}\x1f{content}" for role, content in said)
    assert (found["text"], found["metadata"], rejects) == (expected, None, [])


def test_what_an_instruction_is_about_stands_before_both_answers(tmp_path: Path) -> None:
    """As in LLaMA-Factory's pairs."""
    about = {"input": "A text.", "history": [["q", "b"]], "system": "Be brief."}
    row = {"instruction": "Sum up.", "chosen": "Good.", "rejected": "Bad.", **about}
    found, _ = read(jsonl(tmp_path / "rows.jsonl", row), format="preferences")
    asked = "\x1esystem\x1fBe brief.\x1euser\x1fq\x1eassistant\x1fb\x1euser\x1fSum up.\n\nA text."
    assert found[0]["text"] == f"{asked}\x1eassistant\x1fGood.\x1d{asked}\x1eassistant\x1fBad."
    assert found[0]["metadata"] is None


def test_a_system_message_is_not_between_a_prompt_and_its_repetition(tmp_path: Path) -> None:
    system, question = {"role": "system", "content": "s"}, {"role": "user", "content": "q"}
    row = {"prompt": "q", "chosen": [system, question, GOOD], "rejected": [system, question, BAD]}
    (found,), _ = read(jsonl(tmp_path / "rows.jsonl", row), format="preferences")
    begin = "\x1esystem\x1fs\x1euser\x1fq\x1eassistant\x1f"
    assert found["text"] == f"{begin}Good.\x1d{begin}Bad."
    row = {"system": "s", "prompt": "Which?", "chosen": "Which? This.", "rejected": "Which? That."}
    (found,), _ = read(jsonl(tmp_path / "rows.jsonl", row), format="preferences")
    begin = "\x1esystem\x1fs\x1euser\x1fWhich?\x1eassistant\x1f"
    assert found["text"] == f"{begin}This.\x1d{begin}That."


def test_a_question_that_differs_in_white_space_is_one_question(tmp_path: Path) -> None:
    row = {"chosen": [USER, GOOD], "rejected": [{**USER, "content": "Hi\n🙂\n"}, BAD]}
    (found,), _ = read(jsonl(tmp_path / "rows.jsonl", row), format="preferences")
    assert found["text"] == CHOSEN_AND_REJECTED


def test_an_answer_that_begins_with_the_greeting_keeps_it(tmp_path: Path) -> None:
    row = {"prompt": "Hello!", "chosen": "Hello! What is it?", "rejected": "Hello! Go away."}
    (found,), _ = read(jsonl(tmp_path / "rows.jsonl", row), format="preferences")
    assert found["text"].endswith("\x1fHello! Go away.")


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


def test_parquet_and_csv_hold_them_too(tmp_path: Path) -> None:
    rows = [{"messages": [{**USER, "tool_calls": None}, ASSISTANT], "n": 1}] * 3
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    pq.write_table(pa.table({"body": ["none"]}), tmp_path / "texts.parquet")
    (tmp_path / "rows.csv").write_text('prompt,completion\n"Hi\n🙂",Hey\n')
    found, rejects = documents_and_rejects(tmp_path / "*.*", format="chat")
    assert [row["text"] for row in found] == [SAID] * 4
    assert {row["metadata"] for row in found} == {'{"n":1}', None}
    assert [(one.file, str(one.reason)) for one in rejects] == [("texts.parquet", "no_text")]
    assert "no column 'messages', or 'conversations', or 'prompt' and 'completion'" in rejects[0].detail


def test_a_file_of_plain_text_without_speakers_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("Plain text.")
    assert read(tmp_path / "notes.md", format="chat") == ([], [(1, "no_messages")])
    (tmp_path / "mail.eml").write_text("User: Hi\n🙂\nAssistant: Hey")
    assert read(tmp_path / "mail.eml", format="chat") == ([], [(None, "unsupported_format")])
    assert read(tmp_path / "notes.md", format="preferences") == ([], [(None, "unsupported_format")])


@pytest.mark.parametrize("separator", [None, "<|endoftext|>"])
def test_a_file_of_text_is_a_conversation_and_so_is_what_stands_between_marks(
    tmp_path: Path, separator: str | None
) -> None:
    talk = "User: Hi\n🙂\nAssistant: Hey\n"
    path = tmp_path / "talk.txt"
    path.write_text(talk if separator is None else f"{talk}{separator}\n{talk}{separator}\n", newline="\r\n")
    found, rejects = read(path, format="chat", document_separator=separator, piece_bytes=1024)
    assert [row["text"] for row in found] == [SAID] * (1 if separator is None else 2)
    assert rejects == [] and len({row["id"] for row in found}) == len(found)


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


def test_conversations_are_read_again_and_texts_as_their_own_version_says() -> None:
    versions = {
        str(open_source("c", config).version)
        for format in ("text", "chat")
        for config in (
            FilesConfig.model_validate({"paths": ["a.jsonl"], "format": format}),
            HubConfig.model_validate({"name": "a/b", "format": format}),
        )
    }
    assert versions == {"files-13", "hub-5", "files-13 conversations-8", "hub-5 conversations-8"}
