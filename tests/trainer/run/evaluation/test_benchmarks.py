"""A benchmark's log-likelihoods are those of transformers, and its scores those of the definitions."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.trainer.conftest import BOT, EOT
from tests.trainer.models import small
from trainer import hf
from trainer.model import cache
from trainer.model.llama import Llama
from trainer.run.evaluation.benchmarks import Question, benchmark, read_items, scores
from trainer.system.errors import TrainerError
from trainer.system.intervals import wilson

SHOTS = "the model reads a token. is it small? yes\n"
ITEMS: list[dict[str, Any]] = [
    {"context": "", "continuations": ["the", " model"], "gold": 1},
    {"context": SHOTS + "the loss is", "continuations": [" small", " a window of token", " x"], "gold": 0},
    {"context": SHOTS + "a shard", "continuations": [" writes every step", " Überschrift"], "gold": 0},
    {"context": SHOTS + "a shard", "continuations": [" then"], "gold": 0},
    {"context": ["a model and", "a loss and"], "continuations": [" a step", " a step"], "gold": 1},
    # Too long a context.
    {"context": SHOTS * 5 + "the end", "continuations": [" is small", " is"], "gold": 0},
]


@pytest.fixture(scope="module")
def exported(corpus_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("exported") / "model"
    hf.export(small(context=48), corpus_dir / "tokenizer", bot_id=BOT, eot_id=EOT, destination=directory)
    return directory


def written(items: list[dict[str, Any]], path: Path) -> Path:
    path.write_text("".join(json.dumps(item) + "\n" for item in items))
    return path


def computed_by(directory: Path, name: str) -> list[list[float | None]]:
    return [
        json.loads(line)["log_likelihoods"] for line in (directory / f"{name}.log_likelihoods.jsonl").open()
    ]


@torch.no_grad()
def of_transformers(directory: Path, context: str, continuation: str) -> float:
    model = AutoModelForCausalLM.from_pretrained(directory)
    tokenizer = AutoTokenizer.from_pretrained(directory)
    before, after = (tokenizer.encode(text, add_special_tokens=False) for text in (context, continuation))
    tokens = torch.tensor([[BOT, *before, *after]])[:, -(model.config.max_position_embeddings + 1) :]
    found = model(tokens[:, :-1]).logits.log_softmax(-1)[0, -len(after) :]
    return float(found.gather(1, torch.tensor(after)[:, None]).sum())


@pytest.mark.parametrize("positions", [1, 100, 16_384])
def test_log_likelihoods_are_those_of_transformers_for_any_size_of_batch(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, positions: int
) -> None:
    monkeypatch.setitem(cache.POSITIONS, "cpu", positions)
    path = written(ITEMS, tmp_path / "own.jsonl")
    ((name, found),) = benchmark(exported, [path], "fp32", tmp_path)
    assert name == "own" and found["items"] == len(ITEMS)
    assert json.loads((tmp_path / "own.json").read_text()) == found
    for item, row in zip(read_items(path), computed_by(tmp_path, "own"), strict=True):
        wanted = [
            of_transformers(exported, *pair) for pair in zip(item.contexts, item.continuations, strict=True)
        ]
        assert row == pytest.approx(wanted, abs=1e-4)


def test_what_contexts_share_is_computed_once(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[int] = []
    forward = Llama.forward

    def counting(self: Llama, tokens: torch.Tensor, *rest: Any, **more: Any) -> torch.Tensor:
        computed.append(tokens.numel())
        return forward(self, tokens, *rest, **more)

    monkeypatch.setattr(Llama, "forward", counting)
    items = [
        {"context": SHOTS + word, "continuations": [" a", " b", " c"], "gold": 0} for word in ("x", "y", "z")
    ]
    list(benchmark(exported, [written(items, tmp_path / "own.jsonl")]))
    shots = len(AutoTokenizer.from_pretrained(exported).encode(SHOTS))
    assert sum(computed) < shots + 20


def test_a_continuation_longer_than_the_models_context_is_computed_in_pieces(
    exported: Path, tmp_path: Path
) -> None:
    model, tokenizer = AutoModelForCausalLM.from_pretrained(exported), AutoTokenizer.from_pretrained(exported)
    long = " window" * 60
    items = [*ITEMS[:2], {"context": "a", "continuations": [" b", long], "gold": 0}]
    ((_, found),) = benchmark(exported, [written(items, tmp_path / "own.jsonl")], "fp32", tmp_path)
    assert (found["items"], found["cut"]) == (3, 1)
    asked = tokenizer.encode(long, add_special_tokens=False)
    read = [BOT, *tokenizer.encode("a", add_special_tokens=False), *asked]
    length = model.config.max_position_embeddings
    wanted, half = 0.0, length // 2
    for end in range(len(read) - len(asked) + half, len(read) + half, half):
        piece = min(end, len(read)) - end + half
        window = torch.tensor([read[:end][-(length + 1) :]])
        logs = model(window[:, :-1]).logits.log_softmax(-1)[0, -piece:]
        wanted += float(logs.gather(1, window[0, -piece:, None]).sum())
    assert computed_by(tmp_path, "own")[2][1] == pytest.approx(wanted, abs=1e-3)


def test_lengths_of_continuations_are_characters_or_bytes() -> None:
    item = Question(("c",) * 3, ("ab", "ÄÖ", "abcdef"), gold=0)  # 2, 2 and 6 characters; 2, 4 and 6 bytes

    def right(gold: int, row: list[float]) -> list[float]:
        found = scores([Question(item.contexts, item.continuations, gold)], [row])
        names = ("accuracy", "accuracy_per_character", "accuracy_per_byte")
        return [found[name]["value"] for name in names]

    assert right(0, [-1.0, -2.0, -9.0]) == [1, 1, 1]
    assert right(1, [-2.2, -2.4, -9.0]) == [0, 0, 1]
    assert right(2, [-2.2, -2.4, -3.0]) == [0, 1, 1]


def test_scores_stand_beside_chance_and_have_intervals() -> None:
    items = [Question(("c",) * n, tuple("abcd"[:n]), 0) for n in (2, 4)] * 50
    likelihoods = [
        [-0.5 if number % 4 else -3.0, *[-1.0] * (len(item.continuations) - 1)]
        for number, item in enumerate(items)
    ]
    found = scores(items, likelihoods)
    assert found["chance"] == 0.375
    # Wilson's interval of 75 of 100, from statsmodels' proportion_confint
    assert found["accuracy"] == pytest.approx({"value": 0.75, "low": 0.6569, "high": 0.8246}, abs=1e-4)
    assert found["bits_per_byte"]["value"] == pytest.approx((0.75 * 0.5 + 0.25 * 3) / 0.693147, rel=1e-5)
    assert found["bits_per_byte"]["low"] < found["bits_per_byte"]["value"] < found["bits_per_byte"]["high"]


def test_intervals_stay_within_0_and_1() -> None:
    assert wilson(0, 10) == pytest.approx({"value": 0, "low": 0, "high": 0.2775}, abs=1e-4)
    for of in range(1, 200):
        for right in range(of + 1):
            found = wilson(right, of)
            assert 0 <= found["low"] < found["high"] <= 1


def test_items_with_one_continuation_have_no_accuracy() -> None:
    found = scores([Question(("c",), (" word",), 0)], [[-2.0]])
    assert found["accuracy"] is None and found["chance"] is None
    assert found["bits_per_byte"]["value"] == pytest.approx(2 / 0.693147 / 5, rel=1e-5)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "own.jsonl:2: is not JSON"),
        pytest.param("[" * 100_000, "own.jsonl:2: is not JSON", id="too deep"),
        ('{"context": "\\ud83d", "continuations": ["b"], "gold": 0}', "own.jsonl:2: .* UTF-8, but character"),
        ("[]", "own.jsonl:2: must be an object"),
        ('{"context": "a", "continuations": [], "gold": 0}', "`continuations` must be a list"),
        ('{"context": "a", "continuations": ["b", ""], "gold": 0}', "none of them empty"),
        ('{"context": ["a"], "continuations": ["b", "c"], "gold": 0}', "one for each continuation"),
        ('{"context": "a", "continuations": ["b", "c"], "gold": 2}', "counted from 0"),
        ('{"context": "a", "continuations": ["b", "c"], "gold": true}', "counted from 0"),
    ],
)
def test_a_bad_item_is_named_with_its_line(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps(ITEMS[0]) + "\n" + line)
    with pytest.raises(TrainerError, match=said):
        read_items(path)


def test_a_tokenizer_that_loses_text_has_no_bits_per_byte(exported: Path, tmp_path: Path) -> None:
    losing = tmp_path / "model"
    shutil.copytree(exported, losing)
    settings = json.loads((losing / "tokenizer.json").read_text())
    (losing / "tokenizer.json").write_text(json.dumps({**settings, "normalizer": {"type": "Lowercase"}}))
    lower = [{"context": "a", "continuations": [" small"], "gold": 0}]
    upper = [{"context": "A", "continuations": [" Überschrift"], "gold": 0}]
    path = written([*lower, *upper], tmp_path / "mixed.jsonl")
    ((_, found),) = benchmark(losing, [path], "fp32")
    assert found["bits_per_byte"] is None and found["not_given_back"] == pytest.approx(13 / 19)
    for directory, items in ((losing, lower), (exported, upper)):
        ((_, found),) = benchmark(directory, [written(items, path)], "fp32")
        assert found["bits_per_byte"]["value"] > 0 and "not_given_back" not in found
