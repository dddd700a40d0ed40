"""The search for a mixture, on request: small runs on the recipe's shards, and a proposal."""

import json
from pathlib import Path

import pytest
import yaml

from pipeline.cli import main
from pipeline.store import keys
from tests.integration.project import Project

pytest.importorskip("lightgbm", reason="needs the extra `mixture`")
SMALL = {"runs": 5, "target": {"topics": 1.0}, "training": {"max_tokens": 2048, "threads": 1}}


def test_a_search_proposes_shares_and_changes_no_training(
    finished: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = finished.copied(tmp_path)
    trained = project.store.current(keys.PRETRAINED_MODEL).path

    project.recipe["mixture"] = {"search": SMALL}
    status, said = project.run(job="search_mixture")
    assert status == 0, said
    assert project.store.current(keys.PRETRAINED_MODEL).path == trained
    found = project.store.current(keys.MIXTURE_SEARCH)
    runs = json.loads(found.only("runs").read_text())
    assert len(runs) == 5
    assert all(sum(run["shares"].values()) == pytest.approx(1) for run in runs)
    assert all(set(run["losses"]) == {"topics", "stdlib"} for run in runs)
    assert len({run["losses"]["topics"] for run in runs}) == 5

    project.enter(monkeypatch)
    assert main(["mixture"]) == 0
    shown = capsys.readouterr().out
    project.recipe |= yaml.safe_load(shown.partition("beside the recipe:\n")[2])
    weights = project.recipe["variants"]["proposed"]["corpora"]
    assert sum(corpus["weight"] for corpus in weights.values()) == pytest.approx(1, abs=0.001)
    status, said = project.run(job="search_mixture")
    assert status == 0, said
    assert project.store.current(keys.MIXTURE_SEARCH).path == found.path
