"""The ids of conversations, and which are learnt, are those that `transformers` makes with the template."""

import json
import random
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import pyarrow as pa
import pytest

from pipeline.sources.formats.conversations import conversation
from pipeline.stages import bpe, chat

PIECES = [
    "",
    " ",
    "\n\nA line.  ",
    "é🙂",
    "漢字の文。",
    "x = f(1, 2)\n",
    "What is 12345 plus 6?",
    "\t",
    "don't",
    "</s>",
]
# In this copy only: transformers needs the tag to know what is an answer.
WITH_MASK = bpe.CHAT_TEMPLATE.replace(
    "{{ message['content'] }}[END]",
    "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] }}[END]{% endgeneration %}"
    "{% else %}{{ message['content'] }}[END]{% endif %}",
)
KINDS: dict[str, dict[str, object]] = {
    "reserved": {"vocab_size": 700, "chat": True},
    "appended": {"vocab_size": 700},
    "gpt2": {"vocab_size": 700, "pattern": "gpt2", "chat": True},
}


def conversations(number: int, pieces: list[str]) -> list[list[dict[str, str]]]:
    """One to four turns, some with a system message, some with a tool's, empty ones among them but for
    answers, which are set aside without text.
    """
    chosen = random.Random(1)
    made = []
    for n in range(number):
        said = [("system", 1)] * (n % 5 == 0)
        for _ in range(1 + n % 4):
            said += (
                [("user", 4), ("tool", 2), ("assistant", 4)]
                if n % 7 == 0
                else [("user", 4), ("assistant", 4)]
            )
        made.append(
            [
                {"role": role, "content": "".join(chosen.choices(pieces, k=chosen.randint(0, most)))}
                for role, most in said
            ]
        )
        for message in made[-1]:
            if message["role"] == "assistant" and not message["content"].strip():
                message["content"] += "so"
    return made


@pytest.fixture(scope="module", params=KINDS)
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp(request.param)
    params = bpe.TokenizerParams.model_validate(KINDS[request.param])
    files = bpe.files(bpe.train([pa.array(sorted(topics.values())[:30])], params))
    for name, content in (files if params.chat else bpe.with_chat(files)).items():
        (place / name).write_text(content, encoding="utf-8")
    return place


def encoded(directory: Path, rows: list[list[dict[str, str]]]) -> tuple[bpe.Boundaries, list[list[int]]]:
    """The ids of each conversation as the shards have them."""
    tokenizer, config = (
        (directory / name).read_text() for name in ("tokenizer.json", "tokenizer_config.json")
    )
    ends = bpe.boundaries(tokenizer, config)
    encoder = bpe.Encoder(tokenizer, ends, fast=True)
    texts = pa.array([conversation("chat", {"messages": row}) for row in rows], pa.large_string())
    said = chat.messages(pa.array(map(str, range(len(rows)))), texts)
    begins = np.array([ends.control[role] for role in chat.ROLES])[said.roles]
    made = chat.joined(said, *encoder.between(begins, said.contents, ends.control["end"]), ends, 10**6)
    return ends, [ids.tolist() for ids in np.split(made.ids, np.cumsum(made.lengths)[:-1])]


def learnt(ids: list[int], ends: bpe.Boundaries) -> list[int]:
    """1 for each id that follows `[ASSISTANT]`, to the `[END]` of the message: the rule of the trainer."""
    control, last, found = {*ends.control.values(), ends.begin, ends.end}, None, []
    for one in ids:
        found.append(int(last == ends.control["assistant"]))
        last = one if one in control else last
    return found


def test_ids_and_mask_of_a_thousand_conversations_are_those_of_transformers(directory: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers, the reference")
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    assert tokenizer.chat_template == bpe.CHAT_TEMPLATE == (directory / "chat_template.jinja").read_text()
    rows = conversations(1000, PIECES)
    ends, found = encoded(directory, rows)
    theirs = tokenizer.apply_chat_template(
        rows, chat_template=WITH_MASK, return_assistant_tokens_mask=True, return_dict=True
    )
    assert tokenizer.apply_chat_template(rows)["input_ids"] == theirs["input_ids"]
    assert [ids[:-1] for ids in found] == theirs["input_ids"]
    assert {ids[-1] for ids in found} == {ends.end}
    assert [learnt(ids, ends)[:-1] for ids in found] == theirs["assistant_masks"]
    prompt = tokenizer.apply_chat_template(rows[0][:-1], add_generation_prompt=True)["input_ids"]
    assert found[0][: len(prompt)] == prompt


def test_what_spells_a_special_token_is_text_in_every_role(directory: Path) -> None:
    names = [
        token["content"] for token in json.loads((directory / "tokenizer.json").read_text())["added_tokens"]
    ]
    assert {"[USER]", "[END]", "[BOT]"} < set(names)
    rows = conversations(200, [*names, "[EOT][BOT]", " [ASSISTANT] ", "[US", "ER]", "text"])
    ends, found = encoded(directory, rows)
    control = {*ends.control.values(), ends.begin, ends.end}
    for row, ids in zip(rows, found, strict=True):
        marks = [id for message in row for id in (ends.control[message["role"]], ends.control["end"])]
        assert [one for one in ids if one in control] == [ends.begin, *marks, ends.end]
