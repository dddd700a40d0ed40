"""A corpus that is not trained on: what is in it leaves the others, and nothing of it reaches the model."""

from pathlib import Path

import pytest
import yaml

from pipeline.cli import main
from pipeline.store import keys
from tests.integration.project import make_project, python_topics
from tests.rows import jsonl


@pytest.mark.slow
def test_a_model_is_trained_without_what_is_in_a_corpus_with_train_false(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = make_project(tmp_path / "project")
    known = project.directory / "known.jsonl"
    jsonl(known, *({"text": one["text"]} for one in python_topics()[:40]))
    source = {"kind": "files", "paths": [str(known)]}
    project.recipe["corpora"].insert(0, {"name": "known", "source": source, "train": False})
    project.make()
    shards = project.store.current(keys.token_shards("known")).counts
    assert (shards["train_tokens"], shards["validation_documents"]) == (0, 0)
    removed = project.store.current(keys.DEDUP).counts
    assert removed["removed/excluded"] > 20 and removed["duplicates_of/known"] >= removed["removed/excluded"]
    (config,) = (project.home / "store" / "runs").glob("*/config.yaml")
    trained = [corpus["name"] for corpus in yaml.safe_load(config.read_text())["data"]["corpora"]]
    assert trained == ["stdlib", "topics"]
    project.enter(monkeypatch)
    assert main(["lineage", "--variant", "base"]) == 0
    assert "corpus known: 0 tokens trained on" in capsys.readouterr().out
    assert main(["export", "--format", "parquet", "-o", str(tmp_path / "out")]) == 0
    assert not list((tmp_path / "out").rglob("known*"))
