"""The search for a mixture, on request: small runs on the recipe's shards, and a proposal."""

import json
from pathlib import Path

import pytest
import yaml

from pipeline.cli import main
from pipeline.store import keys
from tests.integration.project import Project

pytest.importorskip("lightgbm", reason="needs the extra `mixture`")
NOTHING_LEARNED = {"runs": 5, "training": {"max_tokens": 2048, "threads": 1}}
# Enough for a small model to know more than which token follows which.
SMALL = {
    "runs": 6,
    "target": {"topics": 1.0},
    "training": {
        "max_tokens": 262_144,
        "seq_len": 128,
        "global_batch_tokens": 1024,
        "optimizer": {"kind": "muon", "muon_lr": 0.02, "lr": 0.004},
        "schedule": {"kind": "wsd"},
        "threads": 1,
    },
}


@pytest.mark.slow
def test_a_search_proposes_shares_and_changes_no_training(
    finished: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = finished.copied(tmp_path)
    trained = project.store.current(keys.PRETRAINED_MODEL).path

    project.recipe["mixture"] = {"search": SMALL}
    project.make(job="search_mixture")
    assert project.store.current(keys.PRETRAINED_MODEL).path == trained
    found = project.store.current(keys.MIXTURE_SEARCH)
    runs = json.loads(found.only("runs").read_text())
    assert len(runs) == 6 + 2  # two further seeds of the first one
    assert all(sum(run["shares"].values()) == pytest.approx(1) for run in runs)
    assert all(set(run["losses"]) == {"topics", "stdlib"} for run in runs)
    assert len({run["losses"]["topics"] for run in runs}) == 8
    assert runs[0]["shares"] == runs[-1]["shares"] == runs[-2]["shares"]

    project.enter(monkeypatch)
    assert main(["mixture"]) == 0
    shown = capsys.readouterr().out
    project.recipe |= yaml.safe_load(shown.partition("beside the recipe:\n")[2])
    assert project.recipe["seeds"] == 3 and "decide base proposed --run" in " ".join(shown.split())
    weights = project.recipe["variants"]["proposed"]["corpora"]
    assert sum(corpus["weight"] for corpus in weights.values()) == pytest.approx(1, abs=0.001)
    project.make(job="search_mixture")
    assert project.store.current(keys.MIXTURE_SEARCH).path == found.path


def test_runs_that_have_learned_nothing_are_kept_and_propose_nothing(
    finished: Project, tmp_path: Path
) -> None:
    project = finished.copied(tmp_path)
    project.recipe["mixture"] = {"search": NOTHING_LEARNED}
    status, said = project.run(job="search_mixture")
    assert status == 1
    assert "the small runs have learned nothing: their best loss" in said and "of a bigram model" in said
    runs = json.loads(project.store.current(keys.MIXTURE_SEARCH).only("runs").read_text())
    assert len(runs) == 5 + 2
