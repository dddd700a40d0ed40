"""What cannot be traced is told in one sentence."""

import io
import os
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from pipeline.store import keys
from tests.pipeline.steps.corpora import TEXTS, StoredRun
from tests.pipeline.steps.lineage.test_trace import Said, last


def test_what_cannot_be_traced_is_refused_in_one_sentence(
    trained: StoredRun, said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = last(trained[1])
    (tmp_path / "bad.txt").write_bytes(b"fine until here \xff\xfe")
    both = "give one of --checkpoint, --samples and --memory"
    for arguments, expected in (
        (["trace", ""], "the text is empty"),
        (["trace", "  "], "the text is empty"),
        (["trace", "a few words"], "fewer|tokens, and spans of at least 16 are looked for"),
        (["trace", str(tmp_path / "bad.txt")], "is not UTF-8 at byte 16"),
        (["trace", os.fsdecode(b"fine until here \xff")], "is not UTF-8 at byte 16"),
        (["trace", "text", "--checkpoint", "nothing"], "is not a checkpoint"),
        (["trace", "--samples", ""], "is not a checkpoint"),
        (["trace", "--samples", name], f"{name} writes no samples: training.samples.prompts is empty"),
        (["trace", "--samples", name, "--checkpoint", name], both),
        (["trace", "--memory", name, "--count"], "--count: give a TEXT"),
        (["trace"], "give one of TEXT, --near, --samples, --benchmark and --memory"),
        (["lineage", name, "--step", "33"], "has steps 1 to 32, not 33"),
        (["lineage", name, "--step", "0"], "has steps 1 to 32, not 0"),
        (["lineage", name, "--step", "3", "--losses"], "no checkpoint before step 3"),
        (["lineage", "--document", "nothing"], "no checkpoint on disk was trained on"),
        (["lineage", "--document", ""], "no checkpoint on disk was trained on"),
    ):
        found = said(*arguments)
        assert found.startswith("error: ") and len(found.splitlines()) == 1
        assert any(words in found for words in expected.split("|")), found
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXTS[0][500:800].encode())))
    assert " in the training text" in said("trace", "-")
    (tmp_path / "marked.txt").write_text(TEXTS[0][500:800], encoding="utf-8-sig")
    assert said("trace", str(tmp_path / "marked.txt")) == said("trace", TEXTS[0][500:800])


def test_shards_that_are_gone_are_named_with_the_command_that_makes_them_again(
    trained: StoredRun, said: Said, tmp_path: Path
) -> None:
    shards = trained[0].current(keys.token_shards("first")).path
    shutil.move(shards, tmp_path)
    try:
        found = said("trace", TEXTS[0][:300], "--checkpoint", last(trained[1]))
    finally:
        shutil.move(tmp_path / shards.name, shards)
    assert str(shards) in found and "`python -m pipeline reproduce" in found and len(found.splitlines()) == 1


def test_a_damaged_shard_or_lineage_is_named(trained: StoredRun, said: Said) -> None:
    (shard,) = trained[0].current(keys.token_shards("first")).path.glob("train/*.idx")
    saved = trained[1] / "checkpoints" / "step-00000032"
    for path in (shard, saved / "lineage.json"):
        kept = path.read_bytes()
        path.write_bytes(kept[:10])
        try:
            found = said("lineage", last(trained[1]), "--step", "3")
        finally:
            path.write_bytes(kept)
        assert found.startswith(f"error: {path}") and len(found.splitlines()) == 1


def test_a_model_without_lineage_is_refused(trained: StoredRun, said: Said) -> None:
    run = trained[0].root / "runs" / "0123456789abcdef"
    run.mkdir()
    config = yaml.safe_load((trained[1] / "config.yaml").read_text()) | {"run_dir": str(run)}
    (run / "config.yaml").write_text(yaml.safe_dump({**config, "lineage": {}}))
    try:
        for command in (["trace", TEXTS[0][:300], "--checkpoint"], ["lineage", "--step", "3"]):
            assert "has no lineage" in said(*command, "01234567-00000008")
    finally:
        shutil.rmtree(run)
