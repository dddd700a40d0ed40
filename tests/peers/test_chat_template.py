"""The ids of conversations, and which are learned, are those that `transformers` makes with the template."""

import json
import math
import random
import shutil
from functools import cache
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.sources.formats.conversations import conversation
from pipeline.stages import bpe, chat
from pipeline.steps.model.export import _prepare_tokenizer
from pipeline.store.params import CONTENT, MESSAGE
from trainer.run.evaluation.conversation import ChatFormat
from trainer.run.evaluation.questions import messages

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
    return ids_of(directory, [conversation("chat", {"messages": row}) for row in rows])


def ids_of(directory: Path, texts: list[str]) -> tuple[bpe.Boundaries, list[list[int]]]:
    tokenizer, config = (
        (directory / name).read_text() for name in ("tokenizer.json", "tokenizer_config.json")
    )
    ends = bpe.boundaries(tokenizer, config)
    encoder = bpe.Encoder(tokenizer, ends, fast=True)
    said = chat.messages(pa.array(map(str, range(len(texts)))), pa.array(texts, pa.large_string()))
    begins = np.array([ends.control[role] for role in chat.ROLES])[said.roles]
    made = chat.joined(said, *encoder.between(begins, said.contents, ends.control["end"]), ends, 10**6)
    return ends, [ids.tolist() for ids in np.split(made.ids, np.cumsum(made.lengths)[:-1])]


def learned(ids: list[int], ends: bpe.Boundaries) -> list[int]:
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
        rows, chat_template=bpe.TRAINING_TEMPLATE, return_assistant_tokens_mask=True, return_dict=True
    )
    assert tokenizer.apply_chat_template(rows)["input_ids"] == theirs["input_ids"]
    assert [ids[:-1] for ids in found] == theirs["input_ids"]
    assert {ids[-1] for ids in found} == {ends.end}
    assert [learned(ids, ends)[:-1] for ids in found] == theirs["assistant_masks"]
    prompt = tokenizer.apply_chat_template(rows[0][:-1], add_generation_prompt=True)["input_ids"]
    assert found[0][: len(prompt)] == prompt


def in_parts(row: list[dict[str, str]], chosen: random.Random) -> list[dict[str, Any]]:
    """The same messages as clients of OpenAI's API send them: each content in typed parts of text."""
    made = []
    for message in row:
        text = message["content"]
        cut = chosen.randint(0, len(text))
        parts = [{"type": "text", "text": piece} for piece in (text[:cut], text[cut:])]
        made.append({"role": message["role"], "content": parts if text else chosen.choice([parts, [], None])})
    return made


@pytest.mark.parametrize("template", [bpe.CHAT_TEMPLATE, bpe.TRAINING_TEMPLATE], ids=["chat", "training"])
def test_a_content_in_parts_is_read_as_its_text(directory: Path, template: str) -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers, the reference")
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    rows, chosen = conversations(300, PIECES), random.Random(2)
    parts = [in_parts(row, chosen) for row in rows]
    with_marks = {"return_assistant_tokens_mask": True} if template == bpe.TRAINING_TEMPLATE else {}
    given = {"chat_template": template, "return_dict": True, **with_marks}
    assert tokenizer.apply_chat_template(parts, **given) == tokenizer.apply_chat_template(rows, **given)
    begun = [{"role": "user", "content": "Say"}, {"role": "assistant", "content": "Yes, "}]
    for one in (begun, in_parts(begun, chosen)[:1] + begun[1:], [begun[0], in_parts(begun[1:], chosen)[0]]):
        text = tokenizer.apply_chat_template(
            one, chat_template=template, tokenize=False, continue_final_message=True
        )
        assert text == "[BOT][USER]Say[END][ASSISTANT]Yes, "


NAMES = {"system": ["system", "developer"], "tool": ["tool", "function"]}
TOOL = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {}}}
# What clients send beside role and content, and servers pass on.
BESIDE: dict[str, list[Any]] = {
    "name": ["ann", None],
    "tool_calls": [None, []],
    "function_call": [None],
    "tool_call_id": ["call_1"],
    "reasoning_content": ["Hm.", None],
    "refusal": [None],
    "annotations": [[]],
    "audio": [None],
}
OF_REQUESTS: dict[str, list[Any]] = {
    "tools": [None, [], [TOOL]],
    "tool_choice": [None, "none", "auto"],
    "documents": [None, [], [{"title": "A", "text": "B"}]],
    "enable_thinking": [True, False],
    "reasoning_effort": [None, "low"],
}


# No control token, and no mark of a message.
LETTERS = st.characters(exclude_categories=["Cs"], exclude_characters="[\x1c\x1d\x1e\x1f")


@cache
def opened(directory: Path) -> Any:
    transformers = pytest.importorskip("transformers", reason="needs transformers, the reference")
    return transformers.AutoTokenizer.from_pretrained(directory)


def some_of(settings: dict[str, list[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={name: st.sampled_from(of) for name, of in settings.items()})


@st.composite
def requests(draw: st.DrawFn) -> tuple[list[dict[str, str]], list[dict[str, Any]], dict[str, Any]]:
    """Messages, the same messages as a client may send them, and the other settings of its request."""
    plain, sent = [], []
    for role in draw(st.lists(st.sampled_from(chat.ROLES), min_size=1, max_size=6)):
        pieces = draw(st.lists(st.sampled_from(PIECES) | st.text(LETTERS, max_size=9), max_size=3))
        text = "".join(pieces)
        parts = [draw(st.sampled_from([piece, {"type": "text", "text": piece}])) for piece in pieces]
        forms = [text, parts, {"type": "text", "text": text}, *([] if text else [None])]
        plain.append({"role": role, "content": text})
        named = draw(st.sampled_from(NAMES.get(role, [role])))
        sent.append({"role": named, "content": draw(st.sampled_from(forms)), **draw(some_of(BESIDE))})
    return plain, sent, draw(some_of(OF_REQUESTS))


@given(requests())
@settings(max_examples=60)
def test_what_clients_send_has_the_tokens_of_training(
    directory: Path, request: tuple[list[dict[str, str]], list[dict[str, Any]], dict[str, Any]]
) -> None:
    """As servers of OpenAI's API render a conversation: with vLLM's and llama.cpp's names of settings."""
    plain, sent, beside = request
    tokenizer = opened(directory)
    text = "".join(f"{MESSAGE}{one['role']}{CONTENT}{one['content']}" for one in plain)
    for template in (bpe.CHAT_TEMPLATE, bpe.TRAINING_TEMPLATE):
        ids = tokenizer.apply_chat_template(sent, chat_template=template, return_dict=False, **beside)
        assert ids == ids_of(directory, [text])[1][0][:-1]
    asked = tokenizer.apply_chat_template(sent, add_generation_prompt=True, return_dict=False, **beside)
    assert asked == [*ChatFormat.of(directory).before_answer(messages({"messages": sent}, "answer"))]


def test_what_a_model_of_text_has_not_learned_is_refused_by_the_template(directory: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers, the reference")
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    hello = {"role": "user", "content": "Hello"}
    function = {"name": "add", "arguments": {"a": 1}}
    tool = {"type": "function", "function": {"name": "add", "description": "", "parameters": {}}}
    image = {"type": "image", "url": "a.png"}
    demanded: list[Any] = ["required", {"type": "function", "function": {"name": "add"}}]
    refused: list[tuple[str, list[dict[str, Any]], dict[str, Any]]] = [
        *(("leave out `tools`", [hello], {"tools": [tool], "tool_choice": one}) for one in demanded),
        (
            "leave out `tool_calls`",
            [hello, {"role": "assistant", "tool_calls": [{"function": function}]}],
            {},
        ),
        *(("reads text only", [{"role": "user", "content": content}], {}) for content in ([image], image)),
        ("unknown role narrator", [{"role": "narrator", "content": "So"}], {}),
    ]
    for why, said, beside in refused:
        with pytest.raises(Exception, match=why):
            tokenizer.apply_chat_template(said, tokenize=False, **beside)
    named = [("developer", "[SYSTEM]"), ("function", "[TOOL]"), ("User", "[USER]")]
    for role, token in named:
        text = tokenizer.apply_chat_template([{"role": role, "content": "So"}], tools=[], tokenize=False)
        assert text == f"[BOT]{token}So[END]"


@pytest.mark.slow
def test_trl_trains_an_export_on_the_answers_alone(directory: Path, tmp_path: Path) -> None:
    transformers, trl = pytest.importorskip("transformers"), pytest.importorskip("trl")
    datasets = pytest.importorskip("datasets")
    exported = tmp_path / "exported"
    shutil.copytree(directory, exported)
    ends = bpe.boundaries(
        *((exported / name).read_text() for name in ("tokenizer.json", "tokenizer_config.json"))
    )
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.LlamaConfig(
        vocab_size=720,
        bos_token_id=ends.begin,
        eos_token_id=ends.control["end"],
        max_position_embeddings=256,
        **shape,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(exported)
    _prepare_tokenizer(exported, answers=True)
    rows = datasets.Dataset.from_list([{"messages": row} for row in conversations(8, ["one", " two"])])

    def trainer(**settings: str) -> Any:
        fixed = {"assistant_only_loss": True, "max_steps": 2, "use_cpu": True, "report_to": "none"}
        args = trl.SFTConfig(str(tmp_path / "trl"), save_strategy="no", **fixed, **settings)
        return trl.SFTTrainer(str(exported), args=args, train_dataset=rows)

    with pytest.raises(ValueError, match="not training-compatible"):
        trainer()
    going = trainer(chat_template_path=str(exported / "chat_template_training.jinja"))
    done = going.train()
    assert done.global_step == 2 and math.isfinite(done.training_loss)
    for row in going.train_dataset:
        ids, mask = row["input_ids"], learned(row["input_ids"], ends)
        assert row["labels"] == [one if used else -100 for one, used in zip(ids, mask, strict=True)]


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
