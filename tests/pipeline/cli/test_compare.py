"""`compare` with runs: figures, settings that differ, curves, and the names that find a run."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.cli import main
from pipeline.reports import comparison
from pipeline.store.store import Store
from tests.integration.project import TRAINING
from tests.rows import jsonl
from tests.s3_server import S3
from trainer.system.run_history import running_mean

CORPORA = [
    {"name": "prose", "weight": 3, "train": ["p"], "validation": ["none/prose"], "validation_bytes": 700},
    {"name": "code", "weight": 1, "train": ["c"], "validation": ["none/code"], "validation_bytes": 300},
]
SETTINGS: dict[str, Any] = {
    "run_dir": "run",
    "data": {"tokenizer": "here", "tokenizer_sha256": "d" * 64, "corpora": CORPORA},
    "training": {"max_tokens": 300, "optimizer": {"kind": "muon"}, "evaluation": {}},
}


def write_run(
    run: Path, settings: dict[str, Any], losses: list[float | None], speeds: list[float] | None = None
) -> Path:
    """A run with a record for each loss, of 100 tokens each, and a validation at its end."""
    run.mkdir(parents=True, exist_ok=True)
    (run / "config.yaml").write_text(yaml.safe_dump(settings))
    lines: list[dict[str, Any]] = [
        {"kind": "train", "step": step, "tokens": 100 * step, "loss": loss, "tokens_per_second": speed}
        for step, (loss, speed) in enumerate(
            zip(losses, speeds or [100.0] * len(losses), strict=True), start=1
        )
    ]
    if lines:
        scores = {"loss": (losses[-1] or 0) + 0.1, "bits_per_byte": (losses[-1] or 0) / 2}
        lines.append({"kind": "evaluation", "step": len(losses), "tokens": lines[-1]["tokens"], **scores})
    jsonl(run / "metrics.jsonl", *lines)
    return run


def changed(section: str, **settings: Any) -> dict[str, Any]:
    return {**SETTINGS, section: {**SETTINGS[section], **settings}}


@pytest.fixture(autouse=True)
def _wide_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("GROUNDWORK_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Any:
    def compare(*arguments: str | Path, status: int = 0) -> str:
        assert main(["compare", *map(str, arguments)]) == status
        captured = capsys.readouterr()
        return captured.out if status == 0 else captured.err

    return compare


def test_final_figures_and_only_the_settings_that_differ_are_told(said: Any, tmp_path: Path) -> None:
    adamw = changed("training", optimizer={"kind": "adamw", "lr": 0.01}) | {"run_dir": "elsewhere"}
    first = write_run(tmp_path / "first", SETTINGS, [5.0, 4.0, 3.0], [100.0, 50.0, 100.0])
    second = write_run(tmp_path / "second", adamw, [5.0, 3.5], [200.0, 200.0])
    rows = json.loads(said(first, second, "--json"))
    # 100 tokens at 100, 50 and 100 a second: 4 seconds.
    figures = ("name", "tokens", "done", "loss", "bits_per_byte", "seconds")
    assert [[row[name] for name in figures] for row in rows] == [
        ["first", 300, 1.0, 3.1, 1.5, 4.0],
        ["second", 200, 200 / 300, 3.6, 1.75, 1.0],
    ]
    assert [row["settings"] for row in rows] == [
        "training.optimizer.kind muon, training.optimizer.lr not set",
        "training.optimizer.kind adamw, training.optimizer.lr 0.01",
    ]
    assert rows[0]["curve"]["losses"][-1] == 3.0
    table = said(first, second, "--plot", "both.png")
    assert "3.1000" in table and "67%" in table and "held-out text" not in table.splitlines()[0]
    assert (tmp_path / "both.png").read_bytes().startswith(b"\x89PNG")


def test_runs_on_other_held_out_text_are_marked_and_a_place_or_a_length_makes_no_difference(
    said: Any, tmp_path: Path
) -> None:
    known = [{**corpus, "content": "known"} for corpus in CORPORA]
    moved = [{**corpus, "train": ["elsewhere"]} for corpus in known]
    configs = {
        "all": changed("data", corpora=known),
        "moved": changed("data", corpora=moved, tokenizer="there"),
        "longer": changed("training", max_tokens=9999) | {"data": changed("data", corpora=known)["data"]},
        "code": changed("data", corpora=[{**known[1], "weight": 2}]),
    }
    runs = [write_run(tmp_path / name, config, [3.0]) for name, config in configs.items()]
    rows = json.loads(said(*runs, "--json"))
    assert [row["held_out"] for row in rows] == ["A", "A", "A", "B"]
    assert "data.corpora.code.weight 2" in rows[3]["settings"]
    assert "data.corpora.prose.weight not set" in rows[3]["settings"]
    assert "can be compared where the letter in `held-out text` is the same" in " ".join(said(*runs).split())
    assert [row["settings"] for row in json.loads(said(*runs[:2], "--json"))] == ["", ""]


def test_runs_and_checkpoints_are_found_by_their_names_in_the_ui(said: Any, tmp_path: Path) -> None:
    for name in ("6ddca1201f00aa11", "6ddcffff1f00aa11"):
        write_run(tmp_path / "store/runs" / name, SETTINGS, [5.0, 4.0, 3.0])
    rows = json.loads(said("6ddca120", "6ddca120-00000002", "--json"))
    assert [(row["name"], row["tokens"]) for row in rows] == [("6ddca120", 300), ("6ddca120-00000002", 200)]
    write_run(
        tmp_path / "store/runs/77aa77aa77aa77aa", SETTINGS | {"name": "first 77aa77aa"}, [5.0, 4.0, 3.0]
    )
    rows = json.loads(said("77aa77aa-00000001", "77aa77aa-00000002", "--json"))
    assert [row["name"] for row in rows] == ["first 77aa77aa-00000001", "first 77aa77aa-00000002"]
    assert "may be 6ddca1201f00aa11 or 6ddcffff1f00aa11: add digits" in said("6ddc", status=2)
    unknown = said("0123abcd", status=2)
    assert "no run of this name in" in unknown and "The newest runs: 6ddc" in unknown


@pytest.mark.usefixtures("s3_environment")
def test_a_run_in_a_bucket_is_found_by_its_name(
    said: Any, server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path / "6ddca1201f00aa11", SETTINGS, [5.0, 4.0, 3.0])
    for name in ("config.yaml", "metrics.jsonl"):
        content, key = (run / name).read_bytes(), f"compared/runs/{run.name}/{name}"
        server.client.put_object(Bucket="bucket", Key=key, Body=content)
    monkeypatch.setenv("GROUNDWORK_STORE", "s3://bucket/compared")
    monkeypatch.setenv("GROUNDWORK_CACHE", str(tmp_path / "cache"))
    rows = json.loads(said("6ddca120-00000002", "6ddca120", "--json"))
    assert [(row["name"], row["tokens"]) for row in rows] == [("6ddca120-00000002", 200), ("6ddca120", 300)]
    assert "The newest runs: 6ddca120" in said("0123abcd", status=2)


def test_runs_of_one_name_are_told_apart_by_their_paths(said: Any, tmp_path: Path) -> None:
    runs = [write_run(tmp_path / day / "run", SETTINGS, [3.0]) for day in ("monday", "tuesday")]
    assert [row["name"] for row in json.loads(said(*runs, "--json"))] == list(map(str, runs))


def test_steps_that_fp16_skipped_are_left_out_of_the_training_loss(said: Any, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", SETTINGS, [None, 5.0, None, 4.0])
    losses = json.loads(said(run, "--json"))[0]["curve"]["losses"]
    assert losses[1:] == [5.0, 5.0, 4.0] and math.isnan(losses[0])
    assert running_mean([math.inf, 2.0])[1] == 2.0


def test_what_cannot_be_compared_is_named(said: Any, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", SETTINGS, [3.0])
    empty = write_run(tmp_path / "empty", SETTINGS, [])
    assert f"{empty}: metrics.jsonl has no steps" in said(run, empty, status=2)
    assert "none: neither a variant nor a run. The newest runs of the store: none" in said(
        tmp_path / "none", status=2
    )
    assert "is not a path" in said("x" * 5000, status=2)
    (run / "config.yaml").write_text("{}")
    assert "config.yaml: cannot be read as the configuration" in said(run, status=2)
    (run / "metrics.jsonl").write_bytes(bytes(range(128, 256)))
    before = (run / "metrics.jsonl").read_bytes()
    assert "name a .png file" in said(run, "--plot", run / "metrics.jsonl", status=2)
    assert (run / "metrics.jsonl").read_bytes() == before


def test_a_step_that_the_run_has_not_reached_is_refused(said: Any, tmp_path: Path) -> None:
    write_run(tmp_path / "store/runs/6ddca1201f00aa11", SETTINGS, [5.0, 4.0, 3.0])
    assert "6ddca120-00000009: the run has got to step 3 only" in said("6ddca120-00000009", status=2)


def test_a_variant_that_is_misspelled_or_beside_a_run_is_named(
    said: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / "store/runs/6ddca1201f00aa11", SETTINGS, [5.0, 4.0, 3.0])
    source = {"kind": "files", "paths": ["notes.txt"]}
    recipe = {
        "name": "mine",
        "corpora": [{"name": "notes", "source": source}],
        "training": TRAINING,
        "seeds": 2,
        "variants": {"strict": {"quality": {"min_words": 60}}},
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    monkeypatch.setenv("GROUNDWORK_RECIPE", str(tmp_path / "recipe.yaml"))
    for other in ("strct", "base.2", "6ddca120"):
        assert f"{other}: variants are compared with variants, all seeds of each: base, strict; runs" in said(
            "base", other, status=2
        )


def test_the_table_of_all_runs_shows_what_differs_within_a_recipe(tmp_path: Path) -> None:
    """Also a run that has not begun."""
    store = Store(tmp_path / "store")
    steps: dict[str, list[float | None]] = {"a" * 16: [3.0], "b" * 16: [], "c" * 16: [3.0]}
    for seed, (name, losses) in enumerate(steps.items()):
        recipe = {"name": "other" if name[0] == "c" else "mine", "engine": {"workers": seed}}
        config = changed("training", seed=seed) | {"lineage": {"recipe": recipe}}
        write_run(tmp_path / "store/runs" / name, config, losses)
    saved = tmp_path / "store/runs" / ("a" * 16) / "checkpoints/step-00000001/manifest.json"
    saved.parent.mkdir(parents=True)
    saved.touch()
    runs = {run.run: run for run in comparison.training_runs(comparison.readable(store))}
    assert runs["a" * 8].loss == 3.1 and runs["b" * 8].bits_per_byte is None and runs["b" * 8].tokens == 0
    shown = {name: (run.recipe, run.settings, len(run.checkpoints or ())) for name, run in runs.items()}
    assert shown == {
        "a" * 8: ("mine", "training.seed 0", 1),
        "b" * 8: ("mine", "training.seed 1", 0),
        "c" * 8: ("other", "", 0),
    }
