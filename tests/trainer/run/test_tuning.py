"""Tuning on answers and preferences: what is learned, and that it is the same run however it is computed."""

import json
import math
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from safetensors.torch import load_file

from tests.trainer.chats import BOT, CHAT, EOT, Chats, conversations
from tests.trainer.parallel.processes import sending, train
from tests.trainer.runs import history, outcome, write_config
from tests.trainer.steps import new_session, step
from tests.trainer.trained import trained
from trainer.config import RunConfig, load_to_train
from trainer.data.windows import PADDING
from trainer.run.batch import Batch
from trainer.run.dpo_loss import METRICS
from trainer.run.evaluation.validation import evaluate_checkpoint
from trainer.run.learned_tokens import Answers
from trainer.run.loop import DONE, run
from trainer.run.objectives import loss_sum
from trainer.system.errors import TrainerError
from trainer.system.run_history import RunHistory

WORDS = st.lists(st.integers(4, 299), max_size=5)
TEXT = WORDS.map(lambda ids: ([BOT, *ids, EOT], [False, *[True] * (len(ids) + 1)], [False] * (len(ids) + 2)))


@st.composite
def conversation(draw: st.DrawFn) -> tuple[list[int], list[bool], list[bool]]:
    """Ids, which of them are learned, and which are of the last answer: message by message."""
    roles = draw(st.lists(st.sampled_from(["system", "user", "assistant", "tool"]), max_size=5))
    ids, learned = [BOT], [False]
    last: list[bool] = [False]
    for role in [*roles, "assistant"]:
        content = [*draw(WORDS), CHAT.end]
        ids += [getattr(CHAT, role), *content]
        answers = role == "assistant"
        learned += [False, *[answers] * len(content)]
        last = [False] * len(last) + [False, *[answers] * len(content)]
    return [*ids, EOT], [*learned, False], [*last, False]


@examples(max_examples=200, deadline=None)
@given(st.lists(st.one_of(conversation(), TEXT), min_size=1, max_size=5), WORDS, st.integers(0, 3))
def test_answers_and_text_without_messages_are_learned_and_nothing_else(
    documents: list[tuple[list[int], list[bool], list[bool]]], rest: list[int], padding: int
) -> None:
    """A row may begin with the rest of a long text."""
    row, learned = [*rest], [False, *[True] * len(rest)][: len(rest)]
    last = list(learned)
    for ids, answers, final in documents:
        text = not any(final)
        row, learned, last = row + ids, learned + answers, last + (answers if text else final)
    window = torch.tensor([[*row, *[PADDING] * padding]])
    for only_last, wanted in ((False, learned), (True, last)):
        batch = Batch.of(window, BOT, answers=Answers(BOT, EOT, CHAT, only_last))
        assert batch.learned[0].tolist() == [*wanted[1:], *[False] * padding]


def test_packed_conversations_have_the_loss_that_each_has_alone(sft: dict[str, Any], chats: Chats) -> None:
    session = new_session(sft)
    windows, answers = torch.from_numpy(session.plan.data.batch(0, 0, 1)), session.context.answers
    together = loss_sum(session.model, Batch.of(windows, BOT, answers=answers), "fp32").item()
    alone, count = 0.0, 0
    for row in windows.tolist():
        starts = [place for place, token in enumerate(row) if token == BOT]
        ends = [place + 1 for place, token in enumerate(row) if token == EOT]
        for start, end in zip(starts, ends, strict=True):
            one = torch.tensor([row[start:end]])
            alone += loss_sum(session.model, Batch.of(one, BOT, answers=answers), "fp32").item()
            count += 1
    assert count > len(windows)
    assert together == pytest.approx(alone, rel=1e-6)


@pytest.mark.parametrize("kind", ["sft", "dpo"])
def test_eight_rows_at_once_are_one_row_eight_times(kind: str, request: pytest.FixtureRequest) -> None:
    chosen = request.getfixturevalue(kind)
    found = []
    for windows in (8, 1):
        chosen["training"]["micro_batch_size"] = windows
        session = new_session(chosen)
        session.set_reference()
        found.append(
            [(result.loss, result.grad_norm) for result in (step(session, number) for number in (0, 1))]
        )
    assert np.array(found[0]) == pytest.approx(np.array(found[1]), rel=1e-5)


@pytest.mark.parametrize("kind", ["sft", pytest.param("dpo", marks=pytest.mark.slow)])
def test_a_run_killed_while_it_tunes_ends_in_the_same_bytes(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    chosen = request.getfixturevalue(kind)
    trained(chosen, tmp_path / "whole")
    run_dir = Path(chosen["run_dir"])

    def stored() -> dict[Path, tuple[int, bytes]]:
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in run_dir.glob("reference/*")}

    saved = sending(signal.SIGKILL, lambda: any(run_dir.glob("checkpoints/step-*/manifest.json")))
    assert train(chosen, run_dir, 1, during=saved) == [-signal.SIGKILL]
    before = stored()
    trained(chosen)
    assert outcome(run_dir) == outcome(tmp_path / "whole")
    assert stored() == before and len(before) == (kind == "dpo")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "parallel"),
    [("sft", {}), ("dpo", {}), ("dpo", {"dp_shard": 2}), ("dpo", {"tp": 2}), ("sft", {"pp": 2})],
)
def test_two_processes_tune_the_same_model_as_one(
    kind: str, parallel: dict[str, int], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    chosen = request.getfixturevalue(kind)
    trained(chosen, tmp_path / "one")
    assert train(chosen, tmp_path / "two", 2, parallel=parallel) == [DONE] * 2
    for ours, theirs in zip(history(tmp_path / "one"), history(tmp_path / "two"), strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], abs=1e-6 * max(1, abs(ours["loss"])))
        assert ours.keys() == theirs.keys()


def test_preferences_are_learned_from_ln_2_on_and_told(
    dpo: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    dpo["training"] |= {"dpo": {"nll": 0}, "micro_batch_size": "auto"}
    caplog.set_level("INFO")
    config = trained(dpo)
    steps = [record for record in history(config.run_dir) if record["kind"] == "train"]
    assert steps[0]["loss"] == pytest.approx(math.log(2), abs=1e-6)
    assert (steps[0]["margin"], steps[0]["chosen_change"]) == (0.0, 0.0)
    assert steps[-1]["loss"] < 0.6 and steps[-1]["accuracy"] > 0.9 and steps[-1]["margin"] > 0.5
    last = history(config.run_dir)[-1]
    assert last["kind"] == "evaluation" and last["pairs"] == last["per_corpus"]["pairs"]["pairs"] == 12
    assert last["accuracy"] > 0.9 and last["margin"] > 0.5 and last["answer_loss"] > 0
    assert f"accuracy {last['accuracy']:.3f}, margin {last['margin']:.3f}, change of log p" in caplog.text
    (checkpoint,) = config.run_dir.glob("checkpoints/step-00000012")
    generation = json.loads((checkpoint / "hf/generation_config.json").read_text())
    assert generation["eos_token_id"] == [CHAT.end, EOT]
    again = evaluate_checkpoint(checkpoint, config)
    for name in ("loss", *METRICS, "answer_loss", "bits_per_byte", "pairs"):
        assert again[name] == pytest.approx(last[name]), name


def test_the_chosen_answers_loss_keeps_it_likely(dpo: dict[str, Any]) -> None:
    changes = []
    for nll in (0.0, 1.0):
        dpo["training"] |= {"dpo": {"nll": nll}}
        session = new_session(dpo)
        session.set_reference()
        changes.append([step(session, number) for number in range(6)][-1].preferences["chosen_change"])
    assert changes[0] < changes[1]


def test_the_reference_of_other_weights_is_computed_again(dpo: dict[str, Any]) -> None:
    session = new_session(dpo)
    session.set_reference()
    dpo["training"]["seed"] = 6
    other = new_session(dpo)
    other.set_reference()
    ours, theirs = session.reference, other.reference
    assert ours is not None and theirs is not None
    assert len(list((session.config.run_dir / "reference").iterdir())) == 2
    assert not np.allclose(ours.trained[0], theirs.trained[0], atol=0.1)
    again = new_session(dpo)
    with torch.no_grad():
        again.model.lm_head.weight.zero_()  # what is stored is taken
    again.set_reference()
    assert again.reference is not None and np.array_equal(again.reference.trained[0], theirs.trained[0])


@pytest.mark.parametrize(
    ("kind", "shards", "says"),
    [
        ("dpo", "chat", "chat holds single conversations, and training.objective dpo learns from pairs"),
        ("sft", "pairs", "pairs holds pairs of a chosen and a rejected conversation"),
        ("sft", "long", r"long: document 0 has \d+ tokens, but a row of seq_len 128 holds 129"),
        ("sft", "text", "no corpus has answers to learn in its train shards"),
        ("sft", "unheld", "no corpus has held-out answers in its validation shards"),
        ("sft", "empty", "no corpus has answers to learn in its train shards"),
    ],
)
def test_shards_that_nothing_can_be_learned_from_are_one_sentence(
    kind: str, shards: str, says: str, chats: Chats, settings: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    training = request.getfixturevalue(kind)["training"]
    talk, text = chats.ids([("user", "a"), ("assistant", "b")]), [BOT, 10, 11, EOT]
    long = chats.ids([("user", "a" * 200), ("assistant", "b")])
    for name, documents, held in (
        ("long", [long], talk), ("text", [text], talk), ("unheld", [talk], text), ("empty", [], talk),
    ):  # fmt: skip
        chats.write(name, documents)
        chats.write(f"{name}-v", [held])
    with pytest.raises(TrainerError, match=says):
        run(RunConfig.model_validate(chats.settings(settings, shards, **training)))


def test_conversations_without_an_answer_may_come_first_and_fill_a_batch(
    sft: dict[str, Any], chats: Chats
) -> None:
    asked, answered = [("user", "a" * 118)], [("user", "a"), ("assistant", "b")]
    chats.write("asked", [chats.ids(asked)] * 40 + [chats.ids(answered)] * 9)
    chats.write("asked-v", [chats.ids(answered)])
    sft["training"] |= {"global_batch_tokens": 128, "micro_batch_size": 1}
    config = trained(chats.settings(sft, "asked", **sft["training"]))
    losses = [record["loss"] for record in history(config.run_dir) if record["kind"] == "train"]
    assert 0 < losses.count(0.0) < len(losses)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"packing": "windows"}, "objective dpo needs packing best_fit, so that conversations are whole"),
        ({"document_masking": "auto"}, "objective dpo needs document_masking true"),
        ({"parallel": {"pp": 2}}, "objective dpo cannot be split by parallel.pp: use parallel.dp_shard"),
        ({"control": "shuffled"}, "control shuffled is for pretraining"),
        ({"z_loss": 1e-4}, "training.z_loss has no effect here, it belongs to objective pretrain and sft"),
        ({"objective": "sft", "dpo": {"beta": 1}}, "training.dpo has no effect here"),
        ({"objective": "pretrain", "learn": "last"}, "training.learn has no effect here"),
    ],
)
def test_settings_that_do_not_go_together_are_one_sentence(
    changed: dict[str, Any], says: str, dpo: dict[str, Any], tmp_path: Path
) -> None:
    dpo["training"] |= changed
    with pytest.raises(TrainerError, match=says) as told:
        load_to_train(write_config(dpo, tmp_path / "run.yaml", tmp_path / "run"))
    assert "\n" not in str(told.value)


def test_held_out_rows_that_hold_no_answer_are_validated_as_text(sft: dict[str, Any], chats: Chats) -> None:
    text = [[BOT, *[10] * 100, EOT] for _ in range(20)]
    held_out = chats.write("mixed-v", [*map(chats.ids, conversations(2)), *text])
    sft["data"]["corpora"][0]["validation"] = [str(held_out)]
    sft["training"]["evaluation"] |= {"max_tokens": sft["training"]["seq_len"]}  # one row, of text
    config = trained(sft)
    (first, last) = RunHistory(config.run_dir).validations
    assert first["validation_tokens"] > 100 and last["loss"] < first["loss"]


def test_conversations_without_control_tokens_are_one_sentence(sft: dict[str, Any], tmp_path: Path) -> None:
    del sft["data"]["chat"]
    with pytest.raises(
        TrainerError, match=r"objective sft needs data\.chat, the ids of control tokens: take"
    ):
        load_to_train(write_config(sft, tmp_path / "run.yaml", tmp_path / "run"))


@pytest.mark.parametrize("objective", ["sft", "pretrain"])
def test_control_tokens_behind_the_vocabulary_begin_as_the_mean_of_the_others(
    objective: str, sft: dict[str, Any], finished: RunConfig, corpus_dir: Path
) -> None:
    checkpoint = sorted(finished.run_dir.glob("checkpoints/*"))[-1]
    model = {**sft["training"]["model"]}
    sft |= {"run_dir": f"{sft['run_dir']}-tuned"}
    sft["training"] |= {"model": model, "pretrained": {"path": str(checkpoint / "hf")}}
    sft["training"]["objective"] = objective
    if objective == "pretrain":  # a recipe whose sections will tune the model
        del sft["data"]["chat"]
    del sft["training"]["init"]
    before = load_file(checkpoint / "hf/model.safetensors")
    session = new_session(sft)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        grown = dict(session.model.named_parameters())[name]
        assert torch.equal(grown[:300], before[name])
        torch.testing.assert_close(grown[300:305], before[name].mean(0).expand(5, -1))
        assert not grown[305:].any()
    other = json.loads((corpus_dir / "tokenizer/tokenizer.json").read_text())
    vocab = other["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
    changed = checkpoint / "hf/tokenizer.json"
    changed.write_text(json.dumps(other))
    with pytest.raises(TrainerError, match="tokenize the data with the model's own tokenizer"):
        new_session(sft)
