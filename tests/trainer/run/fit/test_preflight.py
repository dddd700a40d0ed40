"""What cannot work is said before the first step, and nothing is written."""

import os
import re
import shutil
import sysconfig
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed, FailOnRecompileLimitHit

from tests.trainer.shards import write_shard
from tests.trainer.steps import ALONE, new_session
from trainer.config import RunConfig, override
from trainer.data.held_out import held_out
from trainer.data.loader import TrainingData
from trainer.model.llama import Llama
from trainer.parallel.world import World
from trainer.run.batch import Batch
from trainer.run.fit import compiler, hardware, preflight, rehearsal
from trainer.run.loop import run
from trainer.run.objectives import loss_sum
from trainer.run.session import Session
from trainer.system.errors import TrainerError

# Beside the shards and the tokenizer of a sound run; `cut` has lost its end.
SHARDS = {"empty": [], "cut": [range(100)], "big": [[1, 2], [3, 300]], "first": [[300, 1, 2]]}
SHARDS |= {"other": [[1, 50, 60, 0]]}


def test_a_validation_that_takes_long_is_warned_of_with_what_to_change(
    settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    settings["training"]["evaluation"]["every_tokens"] = 512
    preflight.check(RunConfig.model_validate(settings), ALONE)
    said = next(record.message for record in caplog.records if "validation will take" in record.message)
    tokens = sum(part.tokens for part in held_out(RunConfig.model_validate(settings).data, 32))
    assert f"6 times {tokens:,} held-out tokens" in said and "training.evaluation.max_tokens" in said
    assert f"about {100 * 6 * tokens / 3 / 3072:.0f}%" in said
    caplog.clear()
    settings["training"]["evaluation"]["max_tokens"] = 256
    preflight.check(RunConfig.model_validate(settings), ALONE)
    assert "validation will take" not in caplog.text


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            "data.corpora.1.train=[{own}/other]",
            r"other\.bin: document 0 starts with id 1, not with 2; this shard was made with another tok",
        ),
        ("training.samples={{prompts: [a, LONG]}}", r"prompts\.1 has \d+ tokens, .*seq_len 32"),
        (
            "data.corpora.1.validation=[{corpus}/code-0]",
            r"corpus 'code': .*code-0 is in `validation` and in `train`: its loss",
        ),
        (
            "data.corpora.1.validation=[{corpus}/prose-0]",
            r"corpus 'code': .*prose-0 is in `validation` and in `train` of corpus 'prose'",
        ),
        (
            "data.vocab_size=5000",
            r"data\.vocab_size is 5000, but the tokenizer in .*tokenizer has 300 entries: set it to 300",
        ),
        (
            "data.corpora.1.validation=[{own}/empty]",
            "corpus 'code': its validation shards hold no text to predict. Remove",
        ),
        ("data.tokenizer={own}/tokenizer", r"tokenizer\.json has sha256 44136f.*made with"),
        ("data.tokenizer=nowhere", r"nowhere/tokenizer\.json: no such file"),
        (
            "data.corpora.0.train=[{own}/cut]",
            r"corpus 'prose': .*cut\.bin: 150 bytes, but its index counts 100 tokens",
        ),
        (
            "data.corpora.1.validation=[{own}/big]",
            r"corpus 'code': .*big\.bin: document 1 holds id 300, but the vocabulary has 300",
        ),
        (
            "data.corpora.1.validation=[{own}/first]",
            r"first\.bin: document 0 holds id 300, but the vocabulary has 300",
        ),
        ("data.corpora.0.train=[gone]", r"gone\.idx: no such file"),
        (
            "training.seq_len=8192 training.global_batch_tokens=32768 training.max_tokens=32768",
            "too few for one window",
        ),
        (
            "training.model.d_model=2097152 training.model.n_heads=8 training.model.n_kv_heads=8",
            r"MB free, but \d checkpoints of",
        ),
    ],
)
def test_a_run_that_cannot_work_says_why_and_touches_nothing(
    settings: dict[str, Any], corpus_dir: Path, tmp_path: Path, changes: str, says: str
) -> None:
    for name, documents in SHARDS.items():
        write_shard(tmp_path / name, documents)
    os.truncate(tmp_path / "cut.bin", 150)
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "tokenizer.json").write_text("{}")
    for change in re.split(r" (?=training)", changes):
        override(settings, change.format(own=tmp_path, corpus=corpus_dir).replace("LONG", "the " * 40))
    config = RunConfig.model_validate(settings)
    with pytest.raises(TrainerError, match=says):
        run(config)
    assert not config.run_dir.exists()


@pytest.mark.parametrize("averaging", [None, {"half_life_tokens": 512}])
def test_checkpoints_take_the_room_that_was_asked_for(
    settings: dict[str, Any],
    averaging: dict[str, Any] | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings["training"] |= {"averaging": averaging, "optimizer": {"kind": "adamw"}}
    run(RunConfig.model_validate(settings))
    last = max((tmp_path / "run" / "checkpoints").iterdir())
    written = 3 * sum(file.stat().st_size for file in last.rglob("*.safetensors"))
    config = RunConfig.model_validate({**settings, "run_dir": str(tmp_path / "other")})
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda path: SimpleNamespace(free=1.05 * written))
    preflight.check(config, ALONE)
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda path: SimpleNamespace(free=0.95 * written))
    with pytest.raises(TrainerError, match="3 checkpoints of"):
        preflight.check(config, ALONE)


def test_processes_that_do_not_divide_the_batch_are_named(config: RunConfig) -> None:
    says = r"global_batch_tokens 256 is not a multiple of seq_len x micro_batch_size x processes"
    with pytest.raises(TrainerError, match=rf"{says} \(32 x 4 x 3\)"):
        preflight.check(config, World(0, 3, torch.device("cpu")))


def test_the_hash_of_a_corpus_follows_its_content_not_its_place(
    settings: dict[str, Any], config: RunConfig, tmp_path: Path
) -> None:
    before = preflight.check(config, ALONE)
    moved = []
    for prefix in config.data.corpora[0].train:
        for suffix in (".bin", ".idx"):
            shutil.copy(f"{prefix}{suffix}", tmp_path)
        moved.append(str(tmp_path / prefix.name))
    settings["data"]["corpora"][0]["train"] = moved
    assert preflight.check(RunConfig.model_validate(settings), ALONE) == before
    settings["data"]["corpora"][0]["train"] = moved[:1]
    after = preflight.check(RunConfig.model_validate(settings), ALONE)
    assert after["prose"] != before["prose"]
    assert after["code"] == before["code"]


def _known(settings: dict[str, Any], tmp_path: Path, before: int) -> RunConfig:
    """A corpus of known content, one of whose ids, after `before` good ones, is outside the vocabulary."""
    shard = write_shard(tmp_path / "known", [[5] * before, [2, 300, *[5] * 50, 3]])
    known = {"name": "known", "weight": 1, "train": [str(shard)], "content": "as its maker knows it"}
    settings["data"]["corpora"] = [known]
    return RunConfig.model_validate(settings)


def test_shards_of_known_content_are_looked_into_but_not_read_through(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    assert preflight.check(_known(settings, tmp_path, preflight.SAMPLED_TOKENS), ALONE) == {
        "known": "as its maker knows it"
    }
    with pytest.raises(TrainerError, match="document 1 holds id 300"):
        preflight.check(_known(settings, tmp_path, 1000), ALONE)


def test_an_id_outside_the_vocabulary_that_is_met_only_in_training_is_named(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    config = _known(settings, tmp_path, preflight.SAMPLED_TOKENS)
    data = TrainingData(config.data, config.training, tmp_path)
    with pytest.raises(TrainerError, match=r"corpus 'known': .*known\.bin: document 1 holds id 300"):
        for step in range(data.order.sizes[0] // len(data.batch(0, 0, 1)) + 1):
            data.batch(step, 0, 1)


def test_a_model_that_does_not_fit_is_refused_with_what_each_part_needs(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "free_memory", lambda device: 500_000)
    parts = r"needs \d+ MB \(weights .*optimizer state .*activations"
    on_gpu = torch.cuda.is_available()
    where = r"cuda:0; lower training\.micro_batch_size" if on_gpu else "cpu; take a smaller"
    with pytest.raises(TrainerError, match=f"{parts} .*and 0 MB are free on {where}"):
        run(config)
    assert not config.run_dir.exists()


def test_a_rehearsal_reads_one_micro_batch_and_changes_nothing(settings: dict[str, Any]) -> None:
    session = new_session(settings)
    before = [parameter.detach().clone() for parameter in session.model.parameters()]
    random = torch.get_rng_state()
    seen: list[tuple[int, ...]] = []
    session.model.register_forward_pre_hook(lambda _, arguments: seen.append(tuple(arguments[0].shape)))
    rehearsal.dry_run(session)
    assert seen == [(4, 32)]
    assert all(map(torch.equal, session.model.parameters(), before))
    assert torch.equal(torch.get_rng_state(), random)
    assert all(parameter.grad is None for parameter in session.model.parameters())


def test_a_validation_reads_no_more_windows_at_a_time_than_fit_in_training(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def crowded(model: Llama, batch: Batch, *others: Any) -> torch.Tensor:
        if len(batch) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return loss_sum(model, batch, *others)

    settings["training"]["evaluation"]["micro_batch_size"] = 1000
    monkeypatch.setattr("trainer.run.evaluation.validation.loss_sum", crowded)
    assert run(RunConfig.model_validate(settings)) == 0


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), "does not fit"),
        (BackendCompilerFailed, "cannot be comp"),
        (FailOnRecompileLimitHit("recompile_limit reached"), "cannot be compiled .*limit reached"),
    ],
)
def test_what_the_first_batch_fails_with_is_explained(error: Any, says: str) -> None:
    if error is BackendCompilerFailed:
        error = BackendCompilerFailed(lambda: None, RuntimeError("no C++ compiler"), None)
    with pytest.raises(TrainerError, match=says), rehearsal.explained("a batch"):
        raise error


def test_an_optimizer_that_runs_out_of_memory_in_the_first_step_is_explained(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crowded(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Session, "take_step", crowded)
    with pytest.raises(TrainerError, match=r"the first step, .* does not fit .*Lower training\.micro_batch"):
        run(config)


@pytest.mark.parametrize(
    ("changes", "found", "says"),
    [
        ({}, {}, r"needs a C compiler \(gcc or clang\) and Python's headers"),
        ({"compile": False}, {"gcc"}, r"attention auto .* needs Python's headers \(no Python\.h in"),
        ({"compile": False, "attention": "sdpa"}, {}, None),
        ({"compile": False, "document_masking": False}, {}, None),
    ],
)
def test_a_gpu_without_what_triton_compiles_with_is_refused_with_what_to_install(
    settings: dict[str, Any],
    changes: dict[str, Any],
    found: set[str],
    says: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: name if name in found else None)
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    training = RunConfig.model_validate({**settings, "training": settings["training"] | changes}).training
    compiler.check(training, torch.device("cpu"))
    with pytest.raises(TrainerError, match=says) if says else nullcontext():
        compiler.check(training, torch.device("cuda"))


def test_blocks_are_compiled_on_a_gpu_unless_told_otherwise(settings: dict[str, Any]) -> None:
    training = RunConfig.model_validate(settings).training
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert [compiler.compiles(training, device) for device in (cpu, gpu)] == [False, True]
    told = training.model_copy(update={"compile": True})
    assert compiler.compiles(told, cpu)


def test_memory_that_a_container_holds_in_files_it_has_read_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "CGROUP", tmp_path)
    (tmp_path / "memory.max").write_text("4000000000")
    (tmp_path / "memory.current").write_text("3900000000")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 900\nactive_file 99\n")
    assert hardware.free_memory(torch.device("cpu")) == 100_000_999
