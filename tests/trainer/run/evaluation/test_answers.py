"""Answers to many questions: their order, their ends, and their seeds."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, GenerationConfig

from tests.trainer.run.evaluation.test_conversation import BOT, END, GREEDY, SPECIAL, USER, exported, make
from trainer.__main__ import main
from trainer.config import SamplesConfig
from trainer.run.evaluation.answer import answered
from trainer.run.evaluation.conversation import ChatFormat, Conversation
from trainer.run.evaluation.generate import ROWS, Continuation, complete_with_model_of, generate


def test_questions_of_windows_are_answered(tmp_path: Path) -> None:
    exported(tmp_path, make())
    line = json.dumps({"messages": [{"role": "user", "content": "Hello"}]})
    questions = tmp_path / "questions.jsonl"
    questions.write_bytes(f"{line}\r\n{line}\r\n".encode("utf-8-sig"))
    assert len(list(answered(tmp_path / "model", questions, GREEDY))) == 2


def test_the_first_answers_come_before_the_last_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported(tmp_path, make())
    chosen, written = random.Random(3), list[int]()
    lines = [
        json.dumps({"messages": [{"role": "user", "content": "Hello" * chosen.randint(1, 9)}]})
        for _ in range(2 * ROWS + 5)
    ]
    questions = tmp_path / "questions.jsonl"
    questions.write_text("\n".join(lines))

    def counted(*given: Any, **settings: Any) -> Iterator[tuple[int, Continuation]]:
        for found in generate(*given, **settings):
            written.append(found[0])
            yield found

    monkeypatch.setattr("trainer.run.evaluation.answer.generate", counted)
    samples = SamplesConfig(max_new_tokens=2, temperature=0)
    found = answered(tmp_path / "model", questions, samples)
    first = next(found)
    assert len(written) == ROWS
    answers = [first, *found]
    assert len(written) == len(answers) == len(lines)
    for number in (0, ROWS, len(lines) - 1):  # each stands where its question does
        alone = tmp_path / "alone.jsonl"
        alone.write_text(lines[number])
        assert [answers[number]] == list(answered(tmp_path / "model", alone, samples))


@pytest.mark.usefixtures("trainer_environment")
def test_answers_are_drawn_by_a_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exported(tmp_path, make())
    questions = tmp_path / "questions.jsonl"
    lines = ({"messages": [{"role": "user", "content": said}]} for said in ("Hello", "And?"))
    questions.write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    def answers(*options: str) -> str:
        model, longest = f"--model={tmp_path / 'model'}", "--max-new-tokens=8"
        assert main([*("answer", model, longest), *options, str(questions)]) == 0
        return capsys.readouterr().out

    drawn = [answers("--temperature=1", f"--seed={seed}") for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert answers() == answers("--seed=2") not in drawn  # the likeliest words by default


def test_texts_and_answers_end_where_transformers_ends_them(tmp_path: Path) -> None:
    directory, model = tmp_path / "model", make()
    with torch.no_grad():
        model.lm_head.weight[: len(SPECIAL)] = 0  # it ends no text by itself
    exported(tmp_path, model, END)
    form = ChatFormat.of(directory)
    questions = tmp_path / "questions.jsonl"
    questions.write_text(json.dumps({"messages": [{"role": "user", "content": "Hello"}]}))
    samples = GREEDY.model_copy(update={"prompts": ["Hello"]})
    peer, settings = AutoModelForCausalLM.from_pretrained(directory), directory / "generation_config.json"

    def theirs(prompt: tuple[int, ...], ends: list[int]) -> list[int]:
        settings.write_text(json.dumps({"eos_token_id": ends}))
        peer.generation_config = GenerationConfig.from_pretrained(directory)
        written = peer.generate(torch.tensor([prompt]), max_new_tokens=8, do_sample=False)
        return [token for token in written[0, len(prompt) :].tolist() if token not in ends]

    for prompt in (form.before_answer([("user", "Hello")]), (BOT, *form.text_ids("Hello"))):
        third = theirs(prompt, [END])[2]
        expected = theirs(prompt, [END, third])
        assert len(expected) < 3
        if prompt[1] == USER:
            assert next(answered(directory, questions, samples))["text"] == form.text(expected)
        else:
            (found,) = complete_with_model_of(directory, samples, 0)
            assert found["text"] == form.text([*prompt, *expected])


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU writes in bf16, which rounds by the batch")
def test_many_conversations_are_answered_as_one_is_turn_by_turn(tmp_path: Path) -> None:
    """With instructions and beyond the context, too."""
    model = make(context=60)
    exported(tmp_path, model)
    samples = SamplesConfig(max_new_tokens=50, temperature=0)
    asked = [
        [("user", "Hello")],
        [("system", "Be brief."), ("user", "Hi")],
        [("user", "a"), ("assistant", "b"), ("tool", "c")],
    ]
    asked += [[("user", "x" * number), ("assistant", "y"), ("user", "And?")] for number in range(20)]
    questions = tmp_path / "questions.jsonl"
    lines = ({"messages": [{"role": role, "content": said} for role, said in one]} for one in asked)
    questions.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    written = answered(tmp_path / "model", questions, samples)
    for (*before, (role, said)), found in zip(asked, written, strict=True):
        talk = Conversation(model, ChatFormat.of(tmp_path / "model"), samples)
        for message in before:
            talk.read(*message)
        assert found["text"] == "".join(talk.answer(said, role))
        assert found["stops"] == talk.stopped
