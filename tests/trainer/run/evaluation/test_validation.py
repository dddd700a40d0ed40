"""Validation counts every held-out token once, and bits per byte are those of the text."""

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.trainer.models import small
from tests.trainer.steps import ALONE
from trainer.checkpoint.state import read_state
from trainer.config import RunConfig, SamplesConfig
from trainer.data.held_out import held_out
from trainer.data.shards import TokenStream
from trainer.data.windows import PADDING
from trainer.model.llama import Llama
from trainer.run.evaluation.preferences import Evaluation
from trainer.run.evaluation.validation import evaluate, evaluate_checkpoint
from trainer.system.errors import TrainerError


@pytest.fixture
def model(config: RunConfig) -> Llama:
    return small(config.data.vocab_size, config.training.seq_len, **config.training.model.model_dump())


def direct_nats(model: Llama, config: RunConfig, corpus: int) -> tuple[float, int]:
    """Window by window, in float64."""
    stream, seq_len = TokenStream(config.data.corpora[corpus].validation), config.training.seq_len
    nats, count = 0.0, 0
    for start in range(0, stream.num_tokens - 1, seq_len):
        window = stream.window(start, min(seq_len + 1, stream.num_tokens - start))
        nats += nats_of(model, window)
        count += len(window) - 1
    return nats, count


@torch.no_grad()
def nats_of(model: Llama, window: np.ndarray) -> float:
    tokens = torch.from_numpy(window.astype("int64"))
    predicted = model.logits(model(tokens[None, :-1]))[0].double().log_softmax(-1)
    return -predicted.gather(1, tokens[1:, None]).sum().item()


@pytest.mark.parametrize("micro_batch_size", [1, 4, 64])
def test_bits_per_byte_equal_a_direct_computation(
    settings: dict[str, Any], model: Llama, micro_batch_size: int
) -> None:
    settings["training"]["evaluation"]["micro_batch_size"] = micro_batch_size
    config = RunConfig.model_validate(settings)
    found = evaluate(Evaluation(model, config, "fp32", ALONE))
    assert found is not None
    all_nats, all_tokens, all_bytes = 0.0, 0, 0
    for i, corpus in enumerate(config.data.corpora):
        nats, tokens = direct_nats(model, config, i)
        mine = found["per_corpus"][corpus.name]
        assert tokens == TokenStream(corpus.validation).num_tokens - 1
        assert mine["validation_tokens"] == tokens
        assert mine["loss"] == pytest.approx(nats / tokens, rel=1e-6)
        assert mine["bits_per_byte"] == pytest.approx(nats / math.log(2) / corpus.validation_bytes, rel=1e-6)
        all_nats, all_tokens = all_nats + nats, all_tokens + tokens
        all_bytes += corpus.validation_bytes
    assert found["loss"] == pytest.approx(all_nats / all_tokens, rel=1e-6)
    assert found["perplexity"] == pytest.approx(math.exp(all_nats / all_tokens), rel=1e-5)
    assert found["bits_per_byte"] == pytest.approx(all_nats / math.log(2) / all_bytes, rel=1e-6)


def test_a_validation_with_a_cap_reads_a_fixed_subset_spread_over_every_corpus(
    settings: dict[str, Any], model: Llama
) -> None:
    all_tokens = sum(part.tokens for part in held_out(RunConfig.model_validate(settings).data, 32))
    settings["training"]["evaluation"]["max_tokens"] = 200
    config = RunConfig.model_validate(settings)
    once, again = (evaluate(Evaluation(model, config, "fp32", ALONE)) for _ in range(2))
    assert once is not None and once == again
    assert 0 < once["validation_tokens"] <= 200 < all_tokens
    for part in held_out(config.data, 32, 200):
        stream, corpus = part.stream, once["per_corpus"][part.corpus.name]
        windows = -(-(stream.num_tokens - 1) // 32)
        assert part.numbers.tolist() == [i * windows // len(part.numbers) for i in range(len(part.numbers))]
        nats = sum(nats_of(model, stream.window(int(number) * 32, 33)) for number in part.numbers)
        assert corpus["loss"] == pytest.approx(nats / corpus["validation_tokens"], rel=1e-6)
        per_byte = (stream.num_tokens - 1) / part.corpus.validation_bytes
        assert corpus["bits_per_byte"] == pytest.approx(corpus["loss"] * per_byte / math.log(2), rel=0.01)


def test_processes_share_the_windows_between_them(settings: dict[str, Any]) -> None:
    for part in held_out(RunConfig.model_validate(settings).data, 32):
        (alone,) = part.batches(len(part.numbers), 0, 1)
        ranks = [list(part.batches(2, rank, 2)) for rank in range(2)]
        assert len(ranks[0]) == len(ranks[1])
        together = np.concatenate([batch for batches in zip(*ranks, strict=True) for batch in batches])
        assert np.array_equal(together[: len(alone)], alone)
        assert (together[len(alone) :] == PADDING).all()


def test_no_more_windows_than_in_training_are_evaluated_at_a_time_and_no_empty_ones(
    settings: dict[str, Any], model: Llama
) -> None:
    settings["training"]["evaluation"]["micro_batch_size"] = 100_000
    config = RunConfig.model_validate(settings)
    rows: list[int] = []
    model.register_forward_pre_hook(lambda _, arguments: rows.append(len(arguments[0])))
    evaluate(Evaluation(model, config, "fp32", ALONE))
    windows = [len(part.numbers) for part in held_out(config.data, 32)]
    most = config.training.micro_batch_size
    assert set(rows) == {most}
    assert len(rows) == sum(-(-number // most) for number in windows)


def test_a_checkpoint_evaluates_as_training_did_on_all_held_out_text(
    config: RunConfig, finished_once: Path
) -> None:
    last = finished_once / "checkpoints/step-00000012"
    capped = config.training.evaluation.model_copy(update={"max_tokens": 100})
    changed = config.with_training(evaluation=capped)
    found = evaluate_checkpoint(last, changed, SamplesConfig(prompts=["the"], max_new_tokens=2))
    assert len(found.pop("samples")) == 1
    expected = read_state(last)["evaluation"]
    if torch.cuda.is_available():  # a run compiles there, which rounds otherwise
        by_corpus = [one.pop("per_corpus") for one in (found, expected)]
        assert by_corpus[0] == {name: pytest.approx(one, rel=1e-3) for name, one in by_corpus[1].items()}
        expected = pytest.approx(expected, rel=1e-3)
    assert found == expected
    assert found["validation_tokens"] == sum(part.tokens for part in held_out(config.data, 32)) > 100


@pytest.mark.parametrize("appended", [True, False])
def test_text_is_read_that_was_tokenized_before_control_tokens_were_appended(
    config: RunConfig, finished_once: Path, tmp_path: Path, appended: bool
) -> None:
    last = finished_once / "checkpoints/step-00000012"
    content = json.loads((config.data.tokenizer / "tokenizer.json").read_text())
    vocabulary = content["model"]["vocab"]
    ends = sorted(vocabulary, key=vocabulary.get)[-2:]  # what two merges make, and are no part of
    content["model"]["merges"] = content["model"]["merges"][:-2]
    del vocabulary[ends[1]], vocabulary[ends[0]]
    if not appended:
        vocabulary["another"] = len(vocabulary)
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    sha256 = hashlib.sha256((tmp_path / "tokenizer.json").read_bytes()).hexdigest()
    before = config.data.model_copy(update={"tokenizer": tmp_path, "tokenizer_sha256": sha256})
    asked = config.model_copy(update={"data": before})
    if appended:
        assert evaluate_checkpoint(last, asked) == evaluate_checkpoint(last, config)
    else:
        with pytest.raises(TrainerError, match="was trained with another tokenizer"):
            evaluate_checkpoint(last, asked)


def test_without_validation_shards_there_is_nothing_to_say(settings: dict[str, Any], model: Llama) -> None:
    for corpus in settings["data"]["corpora"]:
        corpus |= {"validation": [], "validation_bytes": 0}
    config = RunConfig.model_validate(settings)
    assert evaluate(Evaluation(model, config, "fp32", ALONE)) is None


def test_no_bits_per_byte_where_the_tokenizer_loses_text(model: Llama, config: RunConfig) -> None:
    first, *others = config.data.corpora
    losing = [first.model_copy(update={"not_given_back": 0.3}), *others]
    data = config.data.model_copy(update={"corpora": losing})
    found = evaluate(Evaluation(model, config.model_copy(update={"data": data}), "fp32", ALONE))
    assert found and found["bits_per_byte"] is None and found["loss"] > 0
    assert found["per_corpus"][first.name]["bits_per_byte"] is None
    assert all(found["per_corpus"][other.name]["bits_per_byte"] > 0 for other in others)
