"""A store that is damaged in many places is mended by one run; only the tokenizer waits for a word."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pipeline.store import keys
from pipeline.store.files import MANIFEST
from tests.integration.project import ROOT, Project, make_project
from tests.pipeline.store.test_damage import flip

pytestmark = pytest.mark.slow


def verified(project: Project) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pipeline", "verify", "--deep"]
    return subprocess.run(
        command, capture_output=True, text=True, env=project.environment(), cwd=ROOT, check=False
    )


def test_one_run_mends_a_store_that_is_damaged_in_many_places(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project")
    project.make()
    before, store = project.content(), project.store
    flip(store.current(keys.raw("topics")).files("documents")[0].path, 500)
    shutil.rmtree(store.current(keys.scrubbed("stdlib")).path)
    (store.current(keys.quality("topics")).path / MANIFEST).write_text("")
    flip(store.current(keys.signatures("topics")).files("runs")[0].path, 3000)
    (store.current(keys.DEDUP).path / MANIFEST).unlink()
    shard = next(store.current(keys.token_shards("topics")).path.rglob("train/*.bin"))
    os.truncate(shard, 100)
    flip(store.current(keys.EXPORTED_MODEL).path / "model.safetensors", 5000)
    shutil.rmtree(store.current(keys.PRETRAINED_MODEL).path)
    seen = verified(project)
    assert seen.returncode == 2 and f"DAMAGED  {shard} has 100 bytes" in seen.stdout, seen.stderr
    said = project.make()
    assert "it is made again, and what is damaged is moved aside" in said
    assert project.content() == before
    assert verified(project).returncode == 0

    (project.store.current(keys.TOKENIZER).path / "tokenizer.json").unlink()
    status, said = project.run()
    assert status == 1 and "tokenizer.json is missing: the tokenizer is frozen" in said
    asked = tmp_path / "asked.yaml"
    asked.write_text(yaml.safe_dump({"ops": {"tokenizer": {"config": {"retrain": True}}}}))
    project.make("-c", str(asked))
    assert project.content() == before
