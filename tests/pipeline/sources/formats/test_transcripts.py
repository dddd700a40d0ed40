"""Conversations written with the marks of prompts are read back, whatever they say."""

import random
from collections.abc import Callable

import pytest

from pipeline.sources.formats.conversations import conversation
from pipeline.sources.formats.transcripts import MARKUPS, is_transcript

Said = list[tuple[str, str]]
PIECES = [
    "Hi",
    " a\n\nb ",
    "é🙂",
    "# Title\n### Input:\n",
    "User: so",
    "[1] [x]",
    "<b>s</b>",
    "<|x|>",
    "Human nature:",
    "1 < 2\n",
    "```\ncode\n```",
]


def tagged(form: str, end: str = "", begin: str = "", **names: str) -> Callable[[Said], str]:
    """Writes each message by a format of its role and its content."""
    return lambda said: begin + "".join(form.format(names.get(role, role), text) for role, text in said) + end


def llama_2(said: Said) -> str:
    system = f"<<SYS>>\n{said[0][1]}\n<</SYS>>\n\n" if said[0][0] == "system" else ""
    turns = said[1:] if system else said
    marks = {"user": "<s>[INST] {} [/INST]", "assistant": " {} </s>"}
    first, *rest = [marks[role].format(text) for role, text in turns]
    return "".join([first.replace("[INST] ", f"[INST] {system}", 1), *rest])


WRITTEN: dict[str, Callable[[Said], str]] = {
    "ChatML": tagged("<|im_start|>{}\n{}<|im_end|>\n"),
    "Llama 3": tagged(
        "<|start_header_id|>{}<|end_header_id|>\n\n{}<|eot_id|>", "<|end_of_text|>", "<|begin_of_text|>"
    ),
    "Gemma": tagged("<start_of_turn>{}\n{}<end_of_turn>\n", begin="<bos>", assistant="model"),
    "Zephyr": tagged("<|{}|>\n{}</s>\n"),
    "Phi-3": tagged("<|{}|>\n{}<|end|>\n", "<|endoftext|>"),
    "Llama 2": llama_2,
    "Guanaco": tagged("### {}: {}", user="Human", assistant="Assistant", system="System"),
    "Guanaco in lines": tagged("### {}: {}\n\n", user="Human", assistant="Assistant", system="System"),
    "hh-rlhf": tagged("\n\n{}: {}", user="Human", assistant="Assistant"),
}
# Marks that any text may have, so that a text with them cannot be told apart.
NAMED: dict[str, Callable[[Said], str]] = {
    "Alpaca": tagged("### {}:\n{}\n\n", user="Instruction", assistant="Response"),
    "Alpaca with a preamble": tagged(
        "### {}:\n{}\n\n",
        begin="Below is an instruction that describes a task.\nWrite a response.\n\n",
        user="Instruction",
        assistant="Response",
    ),
    "capitals": tagged("{}: {}\n", user="USER", assistant="ASSISTANT"),
    "lines": tagged("{}: {}\n", user="User", assistant="Assistant", system="System"),
    "paragraphs": tagged("{}: {}\n\n", user="User", assistant="Assistant"),
    "Human and AI": tagged("{}: {}\n", user="Human", assistant="AI"),
    "You and Claude": tagged("{}: {}\n", user="You", assistant="Claude"),
    "a copied page": tagged("{} said:\n{}\n\n", user="You", assistant="ChatGPT"),
    "bold": tagged("**{}:** {}\n\n", user="User", assistant="Assistant"),
    "bold lines": tagged("**{}**\n\n{}\n\n", begin="# A title\n\n", user="You", assistant="ChatGPT"),
    "headings": tagged("## 👤 {}\n\n{}\n\n", begin="# A title\n\n", user="User", assistant="Assistant"),
    "small headings": tagged("#### {}:\n{}\n", user="You", assistant="Gemini"),
    "bold headings": tagged("### **{}**\n{}\n", user="Prompt", assistant="Response"),
    "Vicuna": lambda said: (
        "A chat between a user and an assistant. The assistant is polite."
        + "".join(f" USER: {text}" if role == "user" else f" ASSISTANT: {text}</s>" for role, text in said)
    ),
}
STRIPPED = ("Llama 2", "Guanaco", "Guanaco in lines", "hh-rlhf")  # white space is a part of the marks


def conversations(number: int, system: bool, pieces: list[str] = PIECES) -> list[Said]:
    chosen = random.Random(number)
    made = []
    for n in range(number):
        roles = ["system"] * (system and n % 3 == 0) + ["user", "assistant"] * chosen.randint(1, 4)
        made.append(
            [(role, "so" + "".join(chosen.choices(pieces, k=chosen.randint(0, 5)))) for role in roles]
        )
    return made


@pytest.mark.parametrize("markup", WRITTEN)
def test_random_conversations_are_read_back(markup: str) -> None:
    for said in conversations(300, system=markup != "hh-rlhf"):
        text = WRITTEN[markup](said)
        found = conversation("chat", {"text": text})
        kept = [(role, content.strip() if markup in STRIPPED else content) for role, content in said]
        assert found == "".join(f"\x1e{role}\x1f{content}" for role, content in kept)
        # Speakers of hh-rlhf and Guanaco may begin lines, too, and the more exact markup decides.
        assert [one.names for one in MARKUPS if one.is_conversation(text)].count(False) == 1


@pytest.mark.parametrize("markup", NAMED)
def test_transcripts_with_the_names_of_speakers_are_read_back(markup: str) -> None:
    pieces = [piece for piece in PIECES if ":" not in piece]
    for said in conversations(200, system=markup == "lines", pieces=pieces):
        text = NAMED[markup](said)
        expected = "".join(f"\x1e{role}\x1f{content.strip()}" for role, content in said)
        for column in ("text", "conversation"):
            assert conversation("chat", {column: text}) == expected


def test_the_input_of_an_instruction_is_a_paragraph_of_it() -> None:
    text = "### Instruction:\nAdd.\n\n### Input:\n1 and 2\n\n### Response:\n3"
    assert conversation("chat", {"text": text}) == "\x1euser\x1fAdd.\n\n1 and 2\x1eassistant\x1f3"
    prompt = text.removesuffix("3")
    assert conversation("chat", {"prompt": prompt, "completion": "3"}) == (
        "\x1euser\x1fAdd.\n\n1 and 2\x1eassistant\x1f3"
    )


def test_a_dialogue_that_was_asked_for_is_one_answer() -> None:
    answer = "User: Hi\nAssistant: Hey"
    row = {"instruction": "Write a dialogue.", "output": answer}
    assert conversation("chat", row) == f"\x1euser\x1fWrite a dialogue.\x1eassistant\x1f{answer}"
    pair = {"prompt": "Write a dialogue.", "chosen": answer, "rejected": "No."}
    assert f"\x1eassistant\x1f{answer}\x1d" in conversation("preferences", pair)


@pytest.mark.parametrize(
    "text",
    [
        "Human: an essay of one voice\n\nand its second paragraph",
        "### Human: the only heading",
        "A guide: <|im_start|>user\nHi<|im_end|>",
        "In Llama 2, [INST] q [/INST] a is a turn.",
        "[INST] alone",
        "<|system",
        "User: Ann\nUser: Bob",
        "A user: Hi\nAssistant: Hey",
        "System: Linux 6.1\nUser: ann\nHost: box\n",
        "AI: An essay.\nSystem: It ends.\n",
        "You: Where to?\nHAMLET: To the castle.\nYou: Why?\n",
        "# Roles\n\nA chat has these.\n\n## User\n\nAsks.\n\n## Assistant\n\nAnswers.\n",
        "## User\n\n## System\n",
        "**User guide**\n\n**Assistant** is a word.\n",
        "# User guide\n\n## Assistant manager\n\n## User interface\n",
        "**User**name and **Assistant**s\n",
        "2024-03-12 18:22 User: in\n2024-03-12 18:23 Assistant: out\n",
        "### Instruction: the only heading",
        "",
    ],
)
def test_a_text_about_marks_is_no_conversation(text: str) -> None:
    assert not is_transcript(text)
