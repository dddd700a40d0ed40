"""The tree of trainings that went on from others, and the tokens that each of them trained."""

import json
from pathlib import Path
from typing import Any

import yaml

from pipeline.reports import branches
from trainer.system.run_history import MERGED, RunHistory


def run(runs: Path, name: str, tokens: int, *trunks: dict[str, Any], **lineage: Any) -> RunHistory:
    """A run of so many tokens, whose directory has 16 hex digits that begin with `name`."""
    path = runs / f"{name:0<16}"
    checkpoint = path / "checkpoints/step-00000004"
    checkpoint.mkdir(parents=True)
    (checkpoint / "manifest.json").write_text("{}")
    facts = {"training": {"trunks": trunks}}
    (checkpoint / "lineage.json").write_text(json.dumps(facts))
    config = {"name": f"mine {name}", "training": {"max_tokens": tokens}, "lineage": lineage}
    (path / "config.yaml").write_text(yaml.safe_dump(config))
    (path / "metrics.jsonl").write_text(json.dumps({"kind": "train", "step": 4, "tokens": tokens}) + "\n")
    return RunHistory(path)


def test_branches_stand_below_their_trunk_and_a_mean_trains_nothing(tmp_path: Path) -> None:
    trunk = run(tmp_path, "aaaaaaaa", 400)
    branch = run(tmp_path, "bbbbbbbb", 600, {"run": "aaaaaaaa", "step": 3, "tokens": 300})
    twig = run(tmp_path, "cccccccc", 700, {"run": "bbbbbbbb", "step": 5, "tokens": 500})
    mean = run(tmp_path, "dddddddd", 700, {"run": "bbbbbbbb", "step": 5, "tokens": 500}, **{MERGED: [{}]})
    assert branches.lines([twig, branch, mean, trunk]) == [
        "mine aaaaaaaa: trained 400 tokens",
        "    mine bbbbbbbb: went on from aaaaaaaa at step 3, after 300 tokens, and trained 300 tokens",
        "        mine cccccccc: went on from bbbbbbbb at step 5, after 500 tokens, and trained 200 tokens",
        "In all 900 tokens were trained; 800 more were shared.",
    ]
    assert branches.lines([trunk, mean]) == []


def test_a_run_that_was_overtaken_by_its_branch_stays_the_root(tmp_path: Path) -> None:
    of_trunk = {"run": "aaaaaaaa", "step": 3, "tokens": 300}
    trunk = run(tmp_path, "aaaaaaaa", 700, of_trunk, {"run": "bbbbbbbb", "step": 5, "tokens": 500})
    branch = run(tmp_path, "bbbbbbbb", 600, of_trunk)
    assert branches.lines([branch, trunk]) == [
        "mine aaaaaaaa: went on from bbbbbbbb at step 5, after 500 tokens, and trained 500 tokens",
        "    mine bbbbbbbb: went on from aaaaaaaa at step 3, after 300 tokens, and trained 300 tokens",
        "In all 800 tokens were trained; 500 more were shared.",
    ]
