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
STRIPPED = ("Llama 2", "Guanaco", "Guanaco in lines", "hh-rlhf")  # white space is a part of the marks


def conversations(number: int, system: bool) -> list[Said]:
    chosen = random.Random(number)
    made = []
    for n in range(number):
        roles = ["system"] * (system and n % 3 == 0) + ["user", "assistant"] * chosen.randint(1, 4)
        made.append(
            [(role, "so" + "".join(chosen.choices(PIECES, k=chosen.randint(0, 5)))) for role in roles]
        )
    return made


@pytest.mark.parametrize("markup", WRITTEN)
def test_random_conversations_are_read_back(markup: str) -> None:
    for said in conversations(300, system=markup != "hh-rlhf"):
        text = WRITTEN[markup](said)
        found = conversation("chat", {"text": text})
        kept = [(role, content.strip() if markup in STRIPPED else content) for role, content in said]
        assert found == "".join(f"\x1e{role}\x1f{content}" for role, content in kept)
        assert sum(one.is_conversation(text) for one in MARKUPS) == 1


@pytest.mark.parametrize(
    "text",
    [
        "Human: an essay of one voice\n\nand its second paragraph",
        "### Human: the only heading",
        "A guide: <|im_start|>user\nHi<|im_end|>",
        "In Llama 2, [INST] q [/INST] a is a turn.",
        "[INST] alone",
        "<|system",
        "User: Hi\nAssistant: Hey",
        "",
    ],
)
def test_a_text_about_marks_is_no_conversation(text: str) -> None:
    assert not is_transcript(text)
