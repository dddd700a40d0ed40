"""A document is forgotten: the whole project is what it would be without it, and no byte of it is left."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipeline.cli import main
from pipeline.steps.lineage.checkpoints import checkpoints
from pipeline.steps.lineage.documents import CorpusText
from pipeline.store import keys
from pipeline.store.store import Store
from tests.integration.project import Project

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
    traces = [document.encode(), *pieces(text, "".join(row["text"] for row in others))]
    assert len(traces) > 3 and all(bytes_with(project.home, trace) for trace in traces)
    project.enter(monkeypatch)
    assert main(["forget", document, *DUPLICATES, "--reason", "asked for", "--yes"]) == 0
    status, said = project.run()
    assert status == 0, said
    before = weights(project.store)
    assert main(["gc", "--forgotten"]) == 0
    assert not [path for trace in traces for path in bytes_with(project.home, trace)]
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


def pieces(text: str, others: str) -> Iterator[bytes]:
    """Lines of a text that stand in no other, and look the same in JSON."""
    for line in map(str.strip, text.splitlines()):
        if len(line) > 50 and line not in others and json.dumps(line) == f'"{line}"' and "'" not in line:
            yield line.encode()


def weights(store: Store) -> dict[str, str]:
    """The data version of what is made up to the weights."""
    made = [key(corpus) for corpus in ("topics", "stdlib") for key in (keys.raw, keys.token_shards)]
    return store.data_versions([*made, keys.DEDUP, keys.PRETRAINED_MODEL])


def bytes_with(root: Path, found: bytes) -> list[Path]:
    """The files that hold these bytes, also compressed in a table."""
    return [path for path in root.rglob("*") if path.is_file() and any(found in one for one in held(path))]


def held(path: Path) -> Iterator[bytes]:
    yield path.read_bytes()
    if path.suffix == ".parquet":
        for column in pq.read_table(path).columns:
            yield from (str(value).encode() for value in column.to_pylist())
