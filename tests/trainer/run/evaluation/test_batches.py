"""Texts that are written many at a time are those of one at a time, here and by transformers."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.trainer.models import small
from tests.trainer.run.evaluation.test_conversation import BOT, EOT, write_tokenizer
from trainer.config import SamplesConfig
from trainer.hf import export
from trainer.model import cache
from trainer.model.llama import Llama
from trainer.run.evaluation.generate import Continuation, Prompt, generate

VOCABULARY, CONTEXT, END = 265, 64, 77
GREEDY = SamplesConfig(max_new_tokens=24, temperature=0)
Texts = list[Continuation]


def make(**shape: Any) -> Llama:
    model = small(VOCABULARY, CONTEXT, **shape)
    with torch.no_grad():
        model.lm_head.weight[END] *= 2  # texts end often, and at many lengths
    return model


def prompts(count: int, longest: int = CONTEXT - GREEDY.max_new_tokens) -> list[list[int]]:
    drawn = random.Random(count)
    return [[BOT, *(drawn.randrange(10, 250) for _ in range(drawn.randrange(longest)))] for _ in range(count)]


def texts(model: Llama, asked: list[list[int]], samples: SamplesConfig = GREEDY, first: int = 4) -> Texts:
    found = dict(generate(model, [Prompt(tokens, first) for tokens in asked], samples, {END}, seed=3))
    return [found[number] for number in range(len(asked))]


def alone(model: Llama, asked: list[list[int]], samples: SamplesConfig = GREEDY, first: int = 4) -> Texts:
    return [texts(model, [tokens], samples, first)[0] for tokens in asked]


@pytest.mark.parametrize("count", [50, pytest.param(1000, marks=pytest.mark.slow)])
def test_the_likeliest_texts_are_those_of_one_at_a_time_and_of_transformers(
    tmp_path: Path, count: int
) -> None:
    model, asked = make(), prompts(count)
    export(
        model, write_tokenizer(tmp_path / "tokenizer"), bot_id=BOT, eot_id=EOT, destination=tmp_path / "model"
    )
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    found = texts(model, asked)
    assert found == alone(model, asked)
    for tokens, ours in zip(asked, found, strict=True):
        written = theirs.generate(
            torch.tensor([tokens]), max_new_tokens=24, do_sample=False, eos_token_id=END, pad_token_id=0
        )
        assert written[0, len(tokens) :].tolist() == ours.tokens + ([] if ours.end is None else [END])
    assert len({len(text.tokens) for text in found}) > 5 and any(text.end is None for text in found)


@pytest.mark.parametrize(
    "shape",
    [
        {},
        pytest.param({"qk_norm": False}, marks=pytest.mark.slow),
        pytest.param({"attention_sinks": True}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_drawn_text_does_not_depend_on_how_many_are_written_with_it(
    monkeypatch: pytest.MonkeyPatch, shape: dict[str, Any]
) -> None:
    model, asked, samples = make(**shape), prompts(70), SamplesConfig(max_new_tokens=24)
    found = {}
    for rows in (1, 7, 64):
        monkeypatch.setattr("trainer.run.evaluation.generate.ROWS", rows)
        found[rows] = texts(model, asked, samples)
    assert found[1] == found[7] == found[64]
    assert texts(model, asked[-3:], samples) == found[64][-3:]
    assert len({tuple(text.tokens) for text in found[1]}) > 60


@pytest.mark.parametrize("first", [4, 20])
def test_texts_of_a_batch_go_on_beyond_the_context_each_at_its_own_place(first: int) -> None:
    model, samples = make(), SamplesConfig(max_new_tokens=90, temperature=0)
    asked = prompts(12, longest=90)
    assert max(map(len, asked)) > CONTEXT
    assert texts(model, asked, samples, first) == alone(model, asked, samples, first)


def test_a_batch_takes_no_more_positions_than_allowed_and_no_time_for_what_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, asked, allowed = make(), prompts(40), 3 * CONTEXT
    expected, rooms, rows = texts(model, asked), [], []
    begin = cache.KeyValueCache.__init__

    def begun(self: cache.KeyValueCache, room: int, rows: int = 1) -> None:
        rooms.append(rows * room)
        begin(self, room, rows)

    monkeypatch.setattr(cache.KeyValueCache, "__init__", begun)
    monkeypatch.setitem(cache.POSITIONS, "cpu", allowed)
    model.register_forward_pre_hook(lambda _, inputs: rows.append(len(inputs[0])))
    assert texts(model, asked) == expected
    assert allowed / 2 < max(rooms) <= allowed
    # One pass for each token that was written, ends too, and none more.
    assert sum(rows) == sum(len(text.tokens) + (text.end is not None) for text in expected)
