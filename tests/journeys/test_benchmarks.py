"""A recipe's benchmarks: searched for in the training text, answered by checkpoints, and shown everywhere."""

import json
import math
import multiprocessing
import re
from pathlib import Path
from pydoc_data.topics import topics

import dagster as dg
import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from pipeline.cli import main
from pipeline.sources.benchmarks.source import NamedBenchmark
from pipeline.steps.model.benchmark import benchmark_checkpoint, named
from pipeline.store import keys
from pipeline.store.store import Store
from pipeline.store.training_runs import saved_steps
from tests.integration.project import Project, make_project, until

KEY = dg.AssetKey("benchmarks")


def ask(path: Path, words: int, times: int = 1) -> Path:
    """A benchmark of 40 questions: how does a chapter go on after so many words? With `times`,
    so many times 40, each a word further on.
    """
    chapters = [text.split() for _, text in sorted(topics.items())[:40]]
    beginnings = [found[time : time + words + 3] for time in range(times) for found in chapters]
    items = [
        {
            "context": " ".join(found[:words]),
            "continuations": [" " + " ".join(found[words:]), " and so on", " xyzzy"],
            "gold": 0,
        }
        for found in beginnings
    ]
    path.write_text("".join(json.dumps(item) + "\n" for item in items))
    return path


@pytest.mark.slow
def test_a_run_answers_its_benchmarks_and_leaves_their_texts_out_of_its_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    project = make_project(tmp_path / "project")
    chapters = {"name": "chapters", "path": str(ask(project.directory / "chapters.jsonl", words=14))}
    project.recipe |= {"evaluation": {"benchmarks": [chapters]}, "decontamination": "benchmarks"}
    said = project.make()
    contaminated = project.store.current(keys.contamination("topics"))
    assert contaminated.counts["contaminated/chapters"] >= 30
    evaluation = json.loads((project.store.current(keys.EVALUATION).path / "evaluation.json").read_text())
    scores = evaluation["benchmarks"]["chapters"]
    assert scores["items"] == 40 and scores["chance"] == pytest.approx(1 / 3)
    assert scores["texts_removed"] and scores["metric"] == "accuracy_per_character"
    card = (project.store.current(keys.EXPORTED_MODEL).path / "README.md").read_text()
    # Fourteen words are more than the model's windows hold where they are long.
    assert scores["cut"] and f"| chapters | 40 ({scores['cut']} cut) |" in card
    assert "## Benchmarks" in card and card.count("| yes |") == 1
    with dg.DagsterInstance.from_config(str(project.home)) as instance:
        (entry,) = instance.fetch_materializations(KEY, limit=9).records
        final = max(instance.get_dynamic_partitions("checkpoints"))
        assert entry.partition_key == final
        (row,) = entry.asset_materialization.metadata["benchmarks"].value.records  # type: ignore[union-attr]
        assert row.data["benchmark"] == "chapters" and row.data["texts removed"] == "yes"
        verdict = str(entry.asset_materialization.metadata["verdict"].value)  # type: ignore[union-attr]
        assert ("No better than chance yet" in verdict) == ("No better than chance yet" in said)
    project.enter(monkeypatch)
    capfd.readouterr()
    assert main(["summary"]) == 0
    assert re.search(r"^Benchmarks   (?s:.*)chapters", capfd.readouterr().out, re.MULTILINE)

    # One more benchmark: the other is not computed again, and the model stays.
    sets = [{"name": "chapters", "source": {"kind": "benchmark", **chapters}}]
    more = {"name": "more", "path": str(ask(project.directory / "more.jsonl", words=9))}
    before = (project.store.current(keys.PRETRAINED_MODEL).path, evaluation["benchmarks"]["chapters"])
    project.recipe |= {"evaluation": {"benchmarks": [chapters, more]}, "decontamination": {"sets": sets}}
    project.make()
    evaluation = json.loads((project.store.current(keys.EVALUATION).path / "evaluation.json").read_text())
    assert (project.store.current(keys.PRETRAINED_MODEL).path, evaluation["benchmarks"]["chapters"]) == before
    assert not evaluation["benchmarks"]["more"]["texts_removed"]
    answers = sorted(
        (project.home / "store" / "benchmarks" / final).glob("[!.]*/chapters.log_likelihoods.jsonl")
    )
    assert len(answers) == 2 and answers[0].samefile(answers[1])

    # Any other checkpoint on request.
    other = min(path.name for path in (project.home / "store" / "runs").glob("*/checkpoints/step-*"))
    name = f"{final[:8]}-{other.removeprefix('step-')}"
    project.make("--tags", json.dumps({"dagster/partition": name}), job="evaluate")
    with dg.DagsterInstance.from_config(str(project.home)) as instance:
        assert instance.get_materialized_partitions(KEY) == {name, final}


@pytest.mark.slow
def test_a_killed_benchmark_goes_on_after_the_last_one_that_is_complete(
    finished: Project, tmp_path: Path
) -> None:
    store = finished.store
    wanted = [
        NamedBenchmark(name="short", path=str(ask(tmp_path / "short.jsonl", words=9))),
        NamedBenchmark(name="long", path=str(ask(tmp_path / "long.jsonl", words=9, times=50))),
    ]
    name = saved_steps(store)[-1]
    answering = multiprocessing.get_context("spawn").Process(
        target=benchmark_checkpoint, args=(Store(store.root), name, named(wanted))
    )
    answering.start()
    key = store.directory(keys.benchmarks(name))
    until(lambda: any(key.glob(".*.partial/short.json")), 120)
    answering.kill()
    answering.join()
    (answers,) = key.glob(".*.partial/short.log_likelihoods.jsonl")
    written = answers.stat().st_mtime_ns
    version = benchmark_checkpoint(store, name, named(wanted))
    assert (version.path / "short.log_likelihoods.jsonl").stat().st_mtime_ns == written
    assert {part.name: part.counts["items"] for part in version.parts} == {"short": 40, "long": 2000}


@pytest.mark.slow
def test_each_variant_is_scored_on_the_same_text_as_transformers_scores_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    project = make_project(tmp_path / "project")
    unread = project.directory / "unread.jsonl"
    rows = [{"id": name, "text": f"{name} {text}"} for name, text in sorted(topics.items())[40:44]]
    unread.write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = {"name": "unread", "source": {"kind": "files", "paths": [str(unread)]}, "max_bytes": 8_000}
    project.recipe |= {
        "evaluation": {"texts": [text]},
        "decontamination": "benchmarks",
        "variants": {"wide": {"tokenizer": {"vocab_size": 400}, "quality": "none"}},
    }
    for variant in ("base", "wide"):
        project.make("--tags", json.dumps({"dagster/partition": variant}))
        store = project.variant_store(variant)
        assert store.current(keys.contamination("topics")).counts["contaminated/unread"]
        windows = pq.read_table(store.current(keys.evaluation_text("unread")).only("windows").path)
        evaluation = json.loads((store.current(keys.EVALUATION).path / "evaluation.json").read_text())
        scores = evaluation["benchmarks"]["unread"]
        assert scores["items"] == windows.num_rows and scores["texts_removed"]
        wanted = bits_per_byte(store.current(keys.EXPORTED_MODEL).path, windows.column("text").to_pylist())
        assert scores["bits_per_byte"]["value"] == pytest.approx(wanted, rel=1e-4)
    project.enter(monkeypatch)
    capfd.readouterr()
    assert main(["benchmark", "--on", "recipe", "--variant", "wide", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["unread"] == scores
    assert len(list(project.store.directory(keys.evaluation_text("unread")).glob("*/manifest.json"))) == 1


def bits_per_byte(exported: Path, windows: list[str]) -> float:
    """By transformers: each window is the beginning of a document, in pieces where it is long."""
    model = AutoModelForCausalLM.from_pretrained(exported, dtype=torch.float32)
    tokenizer, length = AutoTokenizer.from_pretrained(exported), model.config.max_position_embeddings
    nats = 0.0
    for window in windows:
        asked = tokenizer.encode(window, add_special_tokens=False)
        read, size = [model.config.bos_token_id, *asked], len(asked) if len(asked) <= length else length // 2
        for at in range(0, len(asked), size):
            piece = asked[at : at + size]
            seen = torch.tensor([read[: at + 1 + len(piece)][-(length + 1) :]])
            logs = model(seen[:, :-1]).logits.log_softmax(-1)[0, -len(piece) :]
            nats -= float(logs.gather(1, torch.tensor(piece)[:, None]).sum().detach())
    return nats / math.log(2) / sum(len(window.encode()) for window in windows)
