"""A document is forgotten: the whole project is what it would be without it, and no byte of it is left."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline.cli import main
from pipeline.reports import events
from pipeline.sources.documents import document_id, own_id
from pipeline.steps.forget.to_forget import returning
from pipeline.steps.lineage.checkpoints import checkpoints
from pipeline.steps.lineage.documents import CorpusText
from pipeline.steps.lineage.readers import Training
from pipeline.store import keys
from pipeline.store.store import Store
from pipeline.store.training_runs import run_histories
from tests.integration.project import (
    Project,
    conversations,
    make_chat_project,
    make_project,
    preferences,
    until,
)
from tests.integration.test_variants import partition
from tests.traces import END, bytes_with, pieces

DUPLICATES = ("again", "almost")  # which would come back


@pytest.mark.slow
def test_a_forgotten_document_leaves_no_byte_and_the_weights_of_a_store_that_never_had_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project(tmp_path / "had")
    project.make()
    document, text = kept(project.store)
    rows = [json.loads(line) for line in (project.directory / "topics.jsonl").read_text().splitlines()]
    others = [row for row in rows if row["text"] != text and row["id"] not in DUPLICATES]
    traces = [document.encode(), *map(str.encode, pieces(text, "".join(row["text"] for row in others)))]
    assert len(traces) > 3 and all(bytes_with(project.home, trace) for trace in traces)
    project.enter(monkeypatch)
    assert main(["forget", document, *DUPLICATES, "--reason", "asked for", "--yes"]) == 0
    project.make()
    before = weights(project.store)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(events, "forget", killed)
        main(["gc", "--forgotten"])
    assert main(["gc", "--forgotten"]) == 0
    assert not bytes_with(project.home, *traces)
    assert weights(project.store) == before

    never = make_project(tmp_path / "never")
    (never.directory / "topics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in others))
    assert weights_with_the_tokenizer_of(project, never) == before


@pytest.mark.slow
def test_with_packing_documents_the_training_goes_on_from_before_the_step_that_read_the_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = project_of_documents(tmp_path / "had")
    project.make()
    document, url, first = read_midway(project.store)
    project.enter(monkeypatch)
    assert main(["forget", document, "--reason", "asked for", "--yes"]) == 0
    project.make()
    (certificate,) = (project.home / "store").glob("forgotten/*/certificate.json")
    assert {one["first"] for one in json.loads(certificate.read_text())["read by"]} == {first}
    before = weights(project.store)
    assert main(["gc", "--forgotten"]) == 0
    (run,) = run_histories(project.store)
    log = run.path / "log.txt"
    assert f"at step {first - 1} of 32: {(first - 1) * 512:,} tokens are trained already" in log.read_text()
    assert not bytes_with(project.home, document.encode()) and weights(project.store) == before

    never = project_of_documents(tmp_path / "never")
    path = never.directory / "topics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows if row["id"] != url))
    assert weights_with_the_tokenizer_of(project, never) == before


def project_of_documents(directory: Path) -> Project:
    """A project that keeps every state of its training, and whose mixture no removal moves."""
    project = make_project(directory)
    for corpus in project.recipe["corpora"]:
        corpus["weight"] = 1
    kept = {"packing": "documents", "checkpoint": {"every_tokens": 512, "keep_last": 99}}
    project.recipe["training"] |= kept
    return project


def read_midway(store: Store) -> tuple[str, str, int]:
    """A document that was first read in the second third of the training and is a duplicate of none: its id,
    that of its source, and the step.
    """
    one = list(checkpoints(store))[-1]
    text, training = CorpusText(store, one.lineage["assets"], "topics"), Training(one.run)
    ids = {document_id("topics", own_id(word)): word for word in topics}
    for held in text.between(0, sum(shard.num_tokens for shard in text.train_shards)):
        steps = training.steps("topics", held.begin, held.end, one.step)
        if len(steps) and 10 < min(steps) < 22 and not returning(store, {held.document}):
            return held.document, ids[held.document], int(min(steps))
    raise AssertionError(one.run)


class Killed(BaseException):
    """As a kill, it lets nobody go on."""


def killed(_: object) -> None:
    raise Killed


def kept(store: Store) -> tuple[str, str]:
    """Id and raw text of a document that was trained on."""
    # In the order of the runs' names; a tuned model has read the conversations alone.
    assets = [one.lineage["assets"] for one in checkpoints(store)]
    last = [one for one in assets if "token_shards/topics" in one][-1]
    text = CorpusText(store, last, "topics")
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


def weights_with_the_tokenizer_of(project: Project, never: Project) -> dict[str, str]:
    """What a store makes that never had a document, with the tokenizer that was frozen while it was there."""
    shutil.copytree(project.home / "store" / keys.TOKENIZER, never.home / "store" / keys.TOKENIZER)
    never.make()
    return weights(never.store)


@pytest.mark.slow
def test_beside_a_run_nothing_is_removed_while_it_prepares_and_nothing_deleted_until_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
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


# the recipe, a variant that makes data of its own, and the sections of `post_training`
MADE = {"base": "topics", "strict": "topics", "sft": "sft_words", "dpo": "dpo_words"}
WORD = "assert"
TUNED = (WORD, *DUPLICATES)  # which are words, too


@pytest.fixture(scope="module")
def make_everything() -> Callable[[Path], Project]:
    """A project that keeps text in as many places as possible."""

    def make(directory: Path) -> Project:
        project = make_chat_project(directory)
        rows = [{"id": one["id"], **pair} for one, pair in zip(conversations(), preferences(), strict=True)]
        for name, found in (
            ("preferences", rows),
            ("asked", [{"text": text[:2000]} for text in sorted(topics.values())[40:42]]),
        ):
            path = directory / f"{name}.jsonl"
            path.write_text("".join(json.dumps(row) + "\n" for row in found))
        asked = {"name": "asked", "source": {"kind": "files", "paths": [str(directory / "asked.jsonl")]}}
        liked = {"name": "liked", "fasttext": "quality_model", "label": "__label__positive"}
        few = {"max_tokens": 4096, "evaluation": {"every_tokens": 4096}}
        project.recipe["training"] |= few | {"checkpoint": {"every_tokens": 4096, "keep_last": 1}}
        arrays = {"kind": "python_docs", "packages": ["numpy"], "max_bytes": 300_000}
        project.recipe["corpora"].append({"name": "arrays", "source": arrays})
        project.recipe |= {
            "quality": {"profile": "docs", "filters": [liked]},
            "quality_model": {"positive": ["topics", "arrays"], "negative": ["stdlib"]},
            "edits": {"rules": ["signatures"], "repeated": [{"within": "corpus", "min_documents": 20}]},
            "decontamination": {"sets": [asked], "action": "report"},
            "evaluation": {"texts": [asked | {"name": "told"}]},
            "token_index": True,
            "variants": {"strict": {"quality": {"min_words": 100}}},
        }
        return project

    return make


def run_all(project: Project) -> None:
    for arguments, job in (((), "pretrain"), (partition("strict"), "pretrain"), ((), "align")):
        project.make(*arguments, job=job)


def made(project: Project) -> Iterator[tuple[str, str]]:
    """The data version of what each recipe makes up to the shards, and its weights."""
    for recipe, corpus in MADE.items():
        store = project.variant_store(recipe)
        stages = [keys.raw(corpus), keys.scrubbed(corpus), keys.quality(corpus), keys.token_shards(corpus)]
        for key in [*stages, keys.DEDUP]:
            yield f"{recipe} {key}", store.current(key).data_version
        (exported,) = store.current(keys.EXPORTED_MODEL).parts[:1]
        yield f"{recipe} weights", exported.files["model.safetensors"].sha256


@pytest.mark.slow
def test_documents_are_forgotten_by_variants_and_tuned_models_too(
    make_everything: Callable[[Path], Project], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_everything(tmp_path / "had")
    run_all(project)
    document, text = kept(project.store)
    rows = [json.loads(line) for line in (project.directory / "topics.jsonl").read_text().splitlines()]
    others = [row for row in rows if row["text"] != text and row["id"] not in DUPLICATES]
    lines = pieces(text, "".join([*(row["text"] for row in others), *sorted(topics.values())[40:42]]))
    tuned = [document_id(corpus, own_id(WORD)) for corpus in ("sft_words", "dpo_words")]
    traces = [document, *tuned, f"Length of {WORD}?", *(line[END:-END] for line in lines)]
    project.enter(monkeypatch)
    for command in (["inspect"], ["trace", text], ["summary"], ["verify"]):
        assert main(command) == 0
    assert all(bytes_with(project.home, trace.encode()) for trace in traces)

    assert main(["forget", document, *tuned, *DUPLICATES, "--reason", "asked for", "--yes"]) == 0
    assert main(["gc", "--forgotten"]) == 0
    assert not bytes_with(project.home, *map(str.encode, traces))
    assert main(["verify", "--deep"]) == 0
    run_all(project)
    assert not bytes_with(project.home, *map(str.encode, traces))

    never = make_everything(tmp_path / "never")
    for name, gone in (("topics", DUPLICATES), ("chat", TUNED), ("preferences", TUNED)):
        path = never.directory / f"{name}.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        rows = [row for row in rows if row["id"] not in gone and row.get("text") != text]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    shutil.copytree(project.home / "store" / keys.TOKENIZER, never.home / "store" / keys.TOKENIZER)
    run_all(never)
    assert dict(made(never)) == dict(made(project))
