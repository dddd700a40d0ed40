"""Generation over a cache writes what the whole model would, stops where it should, repeats for a seed."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from tests.trainer.models import small
from trainer.config import SamplesConfig
from trainer.hf.tokenizer import load_tokenizer
from trainer.model.cache import KeyValueCache
from trainer.model.llama import Llama
from trainer.run.evaluation.generate import Prompt, choose, complete, generate

GREEDY = SamplesConfig(max_new_tokens=20, temperature=0)


def continued(model: Llama, prompt: list[int], samples: SamplesConfig, end: int = -1) -> list[int]:
    ((_, text),) = generate(model, [Prompt(prompt)], samples, {end})
    assert text.end in (end, None)
    return text.tokens


def make(**shape: Any) -> Llama:
    return small(context=40, **shape)


@pytest.mark.parametrize("backend", ["math", "sdpa"])
@pytest.mark.parametrize(
    "shape", [{}, {"qk_norm": True}, {"n_kv_heads": 1, "tie_embeddings": True}, {"attention_sinks": True}]
)
def test_logits_over_a_cache_equal_those_of_the_whole_text(backend: str, shape: dict[str, Any]) -> None:
    model = make(backend=backend, **shape)
    tokens = torch.randint(0, 300, (1, 30), generator=torch.Generator().manual_seed(0))
    cache = KeyValueCache(30)
    with torch.no_grad():
        whole = model.logits(model(tokens))
        parts = tokens.split([9, 1, 1, 7, 1, 11], dim=1)
        pieces = torch.cat([model.logits(model(part, cache=cache)) for part in parts], dim=1)
    torch.testing.assert_close(pieces, whole, rtol=1e-5, atol=1e-5)


def test_greedy_generation_equals_asking_the_whole_model_each_time() -> None:
    model, tokens = make(), [2, 10, 20]
    for _ in range(20):
        with torch.no_grad():
            tokens.append(int(model.logits(model(torch.tensor([tokens])))[0, -1].argmax()))
    assert continued(model, [2, 10, 20], GREEDY) == tokens[3:]


def test_generation_stops_at_the_end_of_text_or_after_the_tokens_that_are_asked_for() -> None:
    model, greedy = make(), SamplesConfig(max_new_tokens=30, temperature=0)
    free = continued(model, [2, 10], greedy)
    assert len(free) == 30
    end = free[5]
    assert continued(model, [2, 10], greedy, end) == free[: free.index(end)]


@pytest.mark.parametrize("length", [2, 39, 40, 41, 130])
def test_a_prompt_of_any_length_is_continued_beyond_the_context(length: int) -> None:
    model, greedy = make(), SamplesConfig(max_new_tokens=100, temperature=0)
    prompt = torch.randint(0, 300, (length,), generator=torch.Generator().manual_seed(0)).tolist()
    found = continued(model, prompt, greedy)
    assert len(found) == 100
    # What is written is read as if it had been given.
    assert continued(model, prompt + found[:50], greedy)[:50] == found[50:]


def test_top_k_never_leaves_the_k_likeliest_and_follows_their_odds() -> None:
    logits = torch.tensor([0.0, 3.0, 2.0, -1.0, 1.0])
    generator = torch.Generator().manual_seed(0)
    drawn = choose(logits.expand(2000, -1), SamplesConfig(temperature=1.0, top_k=2), [generator] * 2000)
    assert set(drawn) == {1, 2}
    assert drawn.count(1) / len(drawn) == pytest.approx(1 / (1 + 2.718281828**-1), abs=0.03)


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(1.0, 0, 0.7), (0.5, 0, 0.9), (2.0, 6, 0.6), (1.0, 0, 1e-60)]
)
def test_what_can_be_drawn_is_what_transformers_would_draw_from(
    temperature: float, top_k: int, top_p: float
) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(12, generator=generator)
    scores = TemperatureLogitsWarper(temperature)(None, logits[None])
    scores = TopKLogitsWarper(top_k)(None, scores) if top_k else scores
    expected = TopPLogitsWarper(top_p)(None, scores)[0].softmax(dim=-1)
    samples = SamplesConfig(temperature=temperature, top_k=top_k, top_p=top_p)
    numbers = choose(logits.expand(4000, -1), samples, [generator] * 4000)
    drawn = torch.bincount(torch.tensor(numbers), minlength=12) / 4000
    assert (drawn > 0).tolist() == (expected > 0.001).tolist()
    torch.testing.assert_close(drawn, expected, rtol=0, atol=0.03)


def test_a_seed_gives_the_same_text_and_special_strings_are_plain_text(corpus_dir: Path) -> None:
    model, tokenizer = make(), load_tokenizer(corpus_dir / "tokenizer")
    samples = SamplesConfig(prompts=["the [EOT] model"], max_new_tokens=12)
    texts = [complete(model, tokenizer, samples, bot_id=2, ends={3}, seed=seed)[0] for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    assert texts[0].startswith("the [EOT] model")
