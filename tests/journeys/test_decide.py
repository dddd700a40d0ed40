"""A question to `decide`, from the first run to the word, on real runs."""

import json
from pathlib import Path
from pydoc_data.topics import topics

import pytest

from pipeline.cli import main
from tests.integration.project import Project, make_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = make_project(tmp_path / "project")
    unread = project.directory / "unread.jsonl"
    unread.write_text("".join(json.dumps({"text": text}) + "\n" for _, text in sorted(topics.items())[40:50]))
    text = {"name": "unread", "source": {"kind": "files", "paths": [str(unread)]}, "max_bytes": 40_000}
    # Long enough to learn from the order of words.
    project.recipe["training"] |= {"max_tokens": 98_304, "checkpoint": {"every_tokens": 98_304}}
    project.recipe |= {
        "evaluation": {"texts": [text]},
        "seeds": 3,
        "variants": {"spoilt": {"training": {"control": "shuffled"}}},
    }
    return project


@pytest.mark.slow
def test_missing_seeds_are_trained_and_a_control_loses(
    project: Project, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    project.enter(monkeypatch)
    assert main(["decide"]) == 2
    assert "no run has been scored on all evaluation texts (" in capfd.readouterr().err
    assert main(["variants", "run", "base", "spoilt.2"]) == 0
    assert main(["decide"]) == 0
    said = capfd.readouterr().out
    assert "needs 3 seeds of each, 1 has ended" in " ".join(said.split())
    assert "(2 runs, about" in " ".join(said.split())

    assert main(["decide", "--run"]) == 0
    said = " ".join(capfd.readouterr().out.split())
    assert said.count("pretrain ") == 2  # spoilt and spoilt.3
    assert "spoilt is worse than base: +" in said
    assert "The negative control spoilt lost, as it must, by " in said
    runs = list((project.home / "store" / "runs").glob("*/config.yaml"))
    assert len(runs) == 6
    for shared in ("tokenizer", "dedup", "corpora/topics/scrubbed", "token_shards/topics"):
        assert len(list((project.home / "store" / shared).glob("[!.]*/manifest.json"))) == 1

    project.recipe["variants"]["empty"] = {"seeds": 1, "quality": {"min_doc_words": 90_000}}
    project.enter(monkeypatch)
    assert main(["decide", "--run"]) == 2
    said, complaint = capfd.readouterr()
    assert "spoilt is worse than base: +" in " ".join(said.split())
    assert "failed: empty" in complaint

    assert main(["decide", "base", "spoilt", "--json"]) == 0
    (found,) = json.loads(capfd.readouterr().out)
    assert (found["word"], found["seeds"], found["comparisons"]) == ("worse", 3, 1)
    assert found["rows"]["unread"] == found["total"]

    assert main(["compare", "--json"]) == 0
    base, _, spoilt = json.loads(capfd.readouterr().out)
    assert (base["rank"], spoilt["rank"]) == (1, 2)
    losses = [seed["loss"] for seed in base["seeds"]]
    assert len(set(losses)) == 3
    monkeypatch.setenv("COLUMNS", "400")
    assert main(["compare", "--plot", str(project.directory / "compare.png")]) == 0
    (header, row, *_) = capfd.readouterr().out.splitlines()
    assert f"{sum(losses) / 3:.4f} ± " in row and "rank" in header
