"""A document is forgotten: the whole project is what it would be without it, and no byte of it is left."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline.cli import main
from pipeline.sources.documents import document_id, own_id
from pipeline.steps.lineage.checkpoints import checkpoints
from pipeline.steps.lineage.documents import CorpusText
from pipeline.store import keys
from pipeline.store.store import Store
from tests.integration.project import Project, until
from tests.traces import bytes_with, pieces

DUPLICATES = ("again", "almost")  # which would come back


@pytest.mark.slow
def test_a_forgotten_document_leaves_no_byte_and_the_weights_of_a_store_that_never_had_it(
    make_project: Callable[[Path], Project], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project(tmp_path / "had")
    assert project.run()[0] == 0
    document, text = kept(project.store)
    rows = [json.loads(line) for line in (project.directory / "topics.jsonl").read_text().splitlines()]
    others = [row for row in rows if row["text"] != text and row["id"] not in DUPLICATES]
    traces = [document.encode(), *map(str.encode, pieces(text, "".join(row["text"] for row in others)))]
    assert len(traces) > 3 and all(bytes_with(project.home, trace) for trace in traces)
    project.enter(monkeypatch)
    assert main(["forget", document, *DUPLICATES, "--reason", "asked for", "--yes"]) == 0
    status, said = project.run()
    assert status == 0, said
    before = weights(project.store)
    assert main(["gc", "--forgotten"]) == 0
    assert not bytes_with(project.home, *traces)
    assert weights(project.store) == before

    never = make_project(tmp_path / "never")
    (never.directory / "topics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in others))
    shutil.copytree(project.home / "store" / keys.TOKENIZER, never.home / "store" / keys.TOKENIZER)
    status, said = never.run()
    assert status == 0, said
    assert weights(never.store) == before


def kept(store: Store) -> tuple[str, str]:
    """Id and raw text of a document that was trained on."""
    lineage = list(checkpoints(store))[-1].lineage
    text = CorpusText(store, lineage["assets"], "topics")
    document = text.at(text.train_shards[0].num_tokens // 2).document
    for path in store.current(keys.raw("topics")).files("documents"):
        for row in pq.read_table(path).to_pylist():
            if row["id"] == document:
                return document, row["text"]
    raise AssertionError(document)


def weights(store: Store) -> dict[str, str]:
    """The data version of what is made up to the weights."""
    made = [key(corpus) for corpus in ("topics", "stdlib") for key in (keys.raw, keys.token_shards)]
    return store.data_versions([*made, keys.DEDUP, keys.PRETRAINED_MODEL])


@pytest.mark.slow
def test_beside_a_run_nothing_is_removed_while_it_prepares_and_nothing_deleted_until_it_ends(
    make_project: Callable[[Path], Project], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    project = make_project(tmp_path)
    project.recipe["training"]["max_tokens"] = 131_072
    project.enter(monkeypatch)
    root, process = project.home / "store", project.start()
    forget, delete = ["forget", "assert", "--reason", "asked for", "--yes"], ["gc", "--forgotten"]
    until(lambda: bool(list(root.glob("corpora/topics/scrubbed/*/manifest.json"))), 120)
    assert main(forget) == 2 and "a run is preparing data in this store" in capsys.readouterr().err
    until(lambda: bool(list(root.glob("runs/*/checkpoints/step-*"))), 120)
    assert main(forget) == 0
    there = sorted(root.rglob("manifest.json"))
    assert main(delete) == 2 and "is being trained: stop it, and repeat this" in capsys.readouterr().err
    assert [path for path in there if not path.exists() and "checkpoints" not in path.parts] == []
    document = document_id("topics", own_id("assert")).encode()
    while not list(root.glob("exported_model/*/manifest.json")):
        assert main(delete) == 2 and process.poll() is None
    _, said = process.communicate()
    assert process.returncode == 0, said
    assert main(delete) == 0
    assert not bytes_with(project.home, document)
    left = {path.relative_to(root).parts[0] for path in root.rglob("manifest.json")}
    assert left == {"corpora", "dedup_evidence", "token_shards", "tokenizer"}
