"""Conversations and preferences in all their forms, and rows that are none: set aside with a reason."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.sources import open_source
from pipeline.sources.files import FilesConfig
from pipeline.sources.hub.dataset import HubConfig
from tests.pipeline.sources.reading import documents_and_rejects, read
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
