"""A small real corpus: a byte-level tokenizer, token shards, the configuration of a run of a second."""

import hashlib
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from tests.trainer.chats import Chats, conversations, preferences
from tests.trainer.models import SHAPE
from tests.trainer.shards import write_shard
from trainer.config import RunConfig
from trainer.run.loop import DONE, run
from trainer.system import launch

BOT, EOT, VOCAB = 2, 3, 300
WORDS = (
    "the a model token of window reads writes shard and then loss is small every step in".split()  # noqa: SIM905
)

TUNED = {
    "seq_len": 128,
    "global_batch_tokens": 1024,
    "micro_batch_size": 2,
    "max_tokens": 12 * 1024,
    "optimizer": {"kind": "adamw", "lr": 1e-3, "eps": 1e-4},
    "init": {"zero_output": False},
    "checkpoint": {"every_tokens": 4 * 1024, "keep_last": 2},
    "evaluation": {"every_tokens": 6 * 1024, "micro_batch_size": 2},
}


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


def _documents(count: int, seed: int) -> list[str]:
    chooser = random.Random(seed)
    return [" ".join(chooser.choices(WORDS, k=chooser.randint(5, 60))) + ".\n" for _ in range(count)]


@pytest.fixture(scope="session")
def corpus_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tokenizer/, and the shards of corpora `prose` (two train shards) and `code`, each with validation."""
    folder = tmp_path_factory.mktemp("corpus")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    specials = ["[UNK]", "[PAD]", "[BOT]", "[EOT]"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(_documents(200, seed=0), trainer)
    assert tokenizer.get_vocab_size() == VOCAB
    (folder / "tokenizer").mkdir()
    tokenizer.save(str(folder / "tokenizer" / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "[BOT]", "eos_token": "[EOT]"}
    settings |= {"unk_token": "[UNK]", "pad_token": "[PAD]"}
    (folder / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(settings))
    sizes = {"prose-0": 60, "prose-1": 40, "prose-v": 9, "code-0": 30, "code-v": 5}
    for seed, (name, count) in enumerate(sizes.items(), start=1):
        documents = _documents(count, seed)
        encodings = tokenizer.encode_batch(documents, add_special_tokens=False)
        write_shard(folder / name, ([BOT, *encoding.ids, EOT] for encoding in encodings))
        (folder / f"{name}.txt").write_text("".join(documents))
    return folder


def _settings(corpus_dir: Path, run_dir: Path) -> dict[str, Any]:
    tokenizer = corpus_dir / "tokenizer"

    def corpus(name: str, weight: float, train: list[str]) -> dict[str, Any]:
        return {
            "name": name,
            "weight": weight,
            "train": [str(corpus_dir / shard) for shard in train],
            "validation": [str(corpus_dir / f"{name}-v")],
            "validation_bytes": len((corpus_dir / f"{name}-v.txt").read_bytes()),
        }

    return {
        "run_dir": str(run_dir),
        "data": {
            "tokenizer": str(tokenizer),
            "tokenizer_sha256": hashlib.sha256((tokenizer / "tokenizer.json").read_bytes()).hexdigest(),
            "vocab_size": VOCAB,
            "bot_id": BOT,
            "eot_id": EOT,
            "corpora": [corpus("prose", 3, ["prose-0", "prose-1"]), corpus("code", 1, ["code-0"])],
        },
        "training": {
            "model": {**SHAPE, "qk_norm": False},
            "seq_len": 32,
            "global_batch_tokens": 256,
            "micro_batch_size": 4,
            "max_tokens": 12 * 256,
            "seed": 5,
            "precision": "fp32",
            "optimizer": {"kind": "muon"},
            "schedule": {"kind": "cosine", "warmup_tokens": 512},
            "checkpoint": {"every_tokens": 4 * 256, "keep_last": 2},
            "evaluation": {"every_tokens": 6 * 256, "micro_batch_size": 4},
            "threads": 1,
        },
        "lineage": {"recipe": "test"},
    }


@pytest.fixture
def trainer_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without these variables a trainer would start Python anew."""
    for name, value in launch.environment(1).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def settings(corpus_dir: Path, tmp_path: Path) -> dict[str, Any]:
    """A run of 12 steps over both corpora, as the YAML file would hold it; change what a test is about."""
    return _settings(corpus_dir, tmp_path / "run")


@pytest.fixture
def config(settings: dict[str, Any]) -> RunConfig:
    return RunConfig.model_validate(settings)


@pytest.fixture(scope="session")
def chats(corpus_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Chats:
    """Shards `chat` and `pairs`, each with validation."""
    chats = Chats(corpus_dir, tmp_path_factory.mktemp("chats") / "shards")
    for name, count, seed in (("", 60, 1), ("-v", 12, 2)):
        chats.write(f"chat{name}", [chats.ids(turns) for turns in conversations(count, seed)])
        pairs = preferences(count, seed)
        chats.write(f"pairs{name}", [chats.ids(chosen) + chats.ids(rejected) for chosen, rejected in pairs])
    return chats


@pytest.fixture
def sft(chats: Chats, settings: dict[str, Any]) -> dict[str, Any]:
    """A run of 12 steps that learns the answers of conversations."""
    return chats.settings(settings, "chat", objective="sft", **TUNED)


@pytest.fixture
def dpo(chats: Chats, settings: dict[str, Any]) -> dict[str, Any]:
    """A run of 12 steps that learns preferences."""
    return chats.settings(settings, "pairs", objective="dpo", **TUNED)


@pytest.fixture(scope="session")
def finished_once(corpus_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("finished") / "run"
    assert run(RunConfig.model_validate(_settings(corpus_dir, run_dir))) == DONE
    return run_dir


@pytest.fixture
def finished(finished_once: Path, config: RunConfig) -> RunConfig:
    """The configuration of a run that is done: its directory is a copy of one that all tests share."""
    shutil.copytree(finished_once, config.run_dir)
    return config
