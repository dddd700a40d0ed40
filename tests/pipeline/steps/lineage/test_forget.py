"""`forget` says what read a document; `gc --forgotten` leaves no byte of it."""

import json
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from pipeline.cli import main
from pipeline.cli.forget import costs
from pipeline.recipe.loading import load_recipe
from pipeline.steps.dedup import passage_index
from pipeline.steps.dedup.passage_index import windows
from pipeline.steps.forget import certificate
from pipeline.steps.lineage.checkpoints import read
from pipeline.steps.lineage.documents import CorpusText
from pipeline.steps.lineage.readers import Training
from pipeline.steps.tokens.token_index import of_shards
from pipeline.store import keys
from pipeline.store.cleanup.gc import published
from pipeline.store.cleanup.holding_forgotten import Holding
from pipeline.store.store import Store
from tests.pipeline.steps.corpora import ENGINE, TEXTS, StoredRun, as_it_was
from tests.pipeline.steps.make import collect
from tests.traces import bytes_with
from trainer.data.shards import Shard, bin_path
from trainer.system.durable import unpublished, write_atomically
from trainer.system.run_directory import RunDirectory

Said = Callable[..., str]


@pytest.fixture(autouse=True)
def _store_as_it_was(trained: StoredRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    with as_it_was(trained[0].root.parent):
        yield


def one_read(store: Store, run: Path) -> tuple[str, list[int]]:
    """A document that the run was trained on, and the steps that read it."""
    text = CorpusText(store, read(run / "checkpoints" / "step-00000032").lineage["assets"], "first")
    held = text.at(text.train_shards[0].num_tokens // 2)
    return held.document, sorted(set(Training(run).steps("first", held.begin, held.end, 32).tolist()))


def tokens(shard: Shard, begin: int) -> bytes:
    """Some tokens, as they lie in a shard of 16 bits."""
    return bin_path(shard.prefix).read_bytes()[2 * begin + 40 : 2 * begin + 80]


def test_what_read_a_document_is_shown_and_gone_afterwards(trained: StoredRun, said: Said) -> None:
    store, run = trained
    of_shards(store, ENGINE, store.current(keys.token_shards("first")))
    passages = passage_index.index(store, ENGINE, store.current(keys.scrubbed("first")))
    document, steps = one_read(store, run)
    assert bytes_with(store.root, document.encode())
    shown = said("forget", document, "--reason", "asked for")
    line = next(line for line in shown.splitlines() if line.startswith(f"{run.name[:8]}-00000032"))
    assert line.split()[1:4] == [str(len(steps)), str(steps[0]), str(steps[-1])]
    assert f"goes: {passages.path}" in shown
    assert "token_index/first" in shown and "nothing was changed" in shown
    assert " and 1 training run, " in shown and "it starts again from the beginning" in shown
    assert not (store.root / "forgotten").exists()

    text = next(
        row["text"]
        for path in store.current(keys.raw("first")).files("documents")
        for row in pq.read_table(path).to_pylist()
        if row["id"] == document
    )
    texts = CorpusText(store, read(run / "checkpoints" / "step-00000032").lineage["assets"], "first")
    begin = next(texts.ranges(texts.holding({document})))[0]
    encoded = tokens(texts.train_shards[0], begin)
    signed, *_ = windows(text)
    traces = (document.encode(), text[200:260].encode(), encoded, signed[0].astype(">u4").tobytes())
    assert all(bytes_with(store.root, trace) for trace in traces)
    said("forget", document, "--reason", "asked for", "--yes")
    (page,) = store.root.glob("forgotten/*/certificate.html")
    assert "1 training run that hold them are still to be deleted." in page.read_text()
    deleted = said("gc", "--forgotten")
    assert "1 training run and" in deleted and "not reached" in deleted
    assert not bytes_with(store.root, *traces)
    assert not run.exists() and not list(store.newest_first(keys.token_index("first")))
    assert not list(store.newest_first(keys.passage_index("first"))) and not passages.path.exists()
    assert list(store.newest_first(keys.TOKENIZER)) and list(store.newest_first(keys.raw("second")))
    (record,) = store.root.glob("forgotten/*/certificate.json")
    facts = json.loads(record.read_text())
    assert facts["reason"] == "asked for" and facts["documents"] == {"first": 1}
    assert facts["still found"] == [] and run.name in facts["deleted"]["runs"]
    assert facts["tokenizer"].startswith("stays")
    told, table = page.read_text().split("<h2>The record</h2>")
    sentences = told.split("<p>")[1:]
    assert len(sentences) == 5 and "asked for" in table
    assert "the removal of 1 document from first was asked for, for this reason: asked for." in sentences[0]
    assert sentences[1].startswith("This document will not be read from the source again.")
    assert sentences[2].startswith("1 model had been trained on such text.")
    assert "1 training run that held them were deleted from this store; none are left." in sentences[3]
    assert "models that were pushed" in sentences[4]
    assert "0 versions" in said("gc", "--forgotten")


def test_the_cost_of_a_removal_names_no_training_where_no_model_goes() -> None:
    assert "training" not in " ".join(costs(Holding([], [], [])))


def test_a_tokenizer_that_was_trained_on_a_document_goes_when_asked(trained: StoredRun, said: Said) -> None:
    store, run = trained
    document, _ = one_read(store, run)
    said("forget", document, "--reason", "asked for", "--retrain-tokenizer", "--yes")
    said("gc", "--forgotten")
    assert not list(store.newest_first(keys.TOKENIZER))


def test_a_file_of_ids_and_a_corpus_name_documents(trained: StoredRun, said: Said, tmp_path: Path) -> None:
    document, _ = one_read(*trained)
    (tmp_path / "ids.txt").write_bytes(f"\ufeff{document}\r\n\r\n{document}".encode())
    assert "1 of corpus first" in said("forget", str(tmp_path / "ids.txt"), "--reason", "x")
    assert "16 of corpus second" in said("forget", "second", "--reason", "x")


def test_a_file_of_a_corpus_names_its_documents_also_in_its_folder(
    trained: StoredRun, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = trained[0].root.parent
    for place in (folder.parent, folder):
        monkeypatch.chdir(place)
        assert Path("second.jsonl").is_file() == (place == folder)
        assert "16 of corpus second" in said("forget", "second.jsonl", "--reason", "x")
    # not the file itself, but the names in it
    assert "is not the id or the URL" in said("forget", "./second.jsonl", "--reason", "x")


def test_a_second_request_says_when_the_first_one_was(trained: StoredRun, said: Said) -> None:
    document, _ = one_read(*trained)
    said("forget", document, "--reason", "asked for", "--yes")
    (page,) = trained[0].root.glob("forgotten/*/certificate.html")
    when = f"{document} was removed on {datetime.now(UTC):%Y-%m-%d}; {page} says what was found and deleted\n"
    deletes = "`python -m pipeline gc --forgotten` deletes what still holds what was removed before\n"
    assert said("forget", document, "--reason", "again", "--yes") == when + deletes
    both = said("forget", document, "second", "--reason", "more", "--yes")
    assert both.startswith(when + deletes + "16 of corpus second: ") and "sets them aside" in both
    said("gc", "--forgotten")
    asked = said("lineage", "--document", document)
    assert asked == f"error: no checkpoint on disk has read it: {when}"
    assert said("forget", document, "--reason", "again", "--yes") == when
    asked = [
        json.loads(path.read_text()) for path in sorted(trained[0].root.glob("forgotten/*/request.json"))
    ]
    assert [{corpus: len(ids) for corpus, ids in one["documents"].items()} for one in asked] == [
        {"first": 1},
        {"second": 16},
    ]
    page.unlink()
    assert said("forget", document, "--reason", "again") == f"{when.partition(';')[0]}\n"


def test_bad_input_gets_one_sentence(trained: StoredRun, said: Said, tmp_path: Path) -> None:
    for name in ("nobody", "https://example.org/none", f"https://example.org/{'a' * 300}"):
        assert said("forget", name, "--reason", "x").startswith(f"error: '{name}' is not the id or the URL")
    for content, expected in ((b"\xff", "is not UTF-8 at byte 0"), (b"\n", "names no document")):
        (tmp_path / "ids.txt").write_bytes(content)
        assert expected in said("forget", str(tmp_path / "ids.txt"), "--reason", "x")
    assert "--reason: is empty" in said("forget", "nobody", "--reason", " ")
    (tmp_path / "ids.txt").write_text("words of a document, not its id " * 100)
    assert len(said("forget", str(tmp_path / "ids.txt"), "--reason", "x")) < 800
    assert "is a folder: give its content" in said("forget", str(tmp_path), "--reason", "x")
    assert "nothing was removed from this store" in said("gc", "--forgotten")
    assert "--keep has no effect" in said("gc", "--forgotten", "--keep", "3")
    document, _ = one_read(*trained)
    with trained[0].in_progress():
        assert "a run is preparing data" in said("forget", document, "--reason", "x", "--yes")
    said("forget", document, "--reason", "x", "--yes")
    with trained[0].in_progress():
        assert "a run is preparing data" in said("gc", "--forgotten")


KILLED = """
import os, signal, sys
from pipeline.cli import main

left, events = int(sys.argv[1]), sys.argv[2].split(",")

def hook(event, arguments):
    global left
    changes = event in events and (arguments[-1] != -1 or "/store/" in os.fspath(arguments[0]))
    left -= changes
    if changes and left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(hook)
sys.exit(main(sys.argv[3:]))
"""
REMOVALS, WRITES = "os.remove,os.rmdir,os.rename", "os.mkdir,os.rename"
MOMENTS = [*range(1, 14), *random.Random(1).sample(range(14, 200), 27)]


@pytest.mark.parametrize(
    "moment", [pytest.param(moment, marks=pytest.mark.slow) if moment > 2 else moment for moment in MOMENTS]
)
def test_a_deletion_that_was_killed_ends_as_any_other(trained: StoredRun, said: Said, moment: int) -> None:
    """Killed at its `moment`th removal of a file or directory."""
    store, run = trained
    of_shards(store, ENGINE, store.current(keys.token_shards("first")))
    document, _ = one_read(store, run)
    names, kept = [document.encode()], intact(store)
    said("forget", document, "--reason", "asked for", "--yes")
    killed(moment, REMOVALS, "gc", "--forgotten")
    said("gc", "--forgotten")
    (record,) = store.root.glob("forgotten/*/certificate.json")
    assert run.name in json.loads(record.read_text())["deleted"]["runs"]
    assert not bytes_with(store.root, *names)
    assert not run.exists() and not list(store.root.glob("runs/.*"))
    left = intact(store)
    assert left == {place: one for place, one in kept.items() if place in left}
    stays = {"corpora", "dedup_evidence", "token_shards", "tokenizer"}
    assert {place.partition("/")[0] for place in left} - {"token_index", "passage_index"} == stays
    assert all("first" not in place for place in left)
    assert main(["verify", "--deep"]) == 0


@pytest.mark.parametrize(
    "moment",
    [pytest.param(moment, marks=pytest.mark.slow) if moment != 4 else moment for moment in range(1, 9)],
)
def test_a_request_is_there_with_its_certificate_or_not_at_all(
    trained: StoredRun, said: Said, moment: int
) -> None:
    """Killed at its `moment`th new directory or name: repeated, and after the deletion, there is a proof."""
    store, run = trained
    document, _ = one_read(store, run)
    asked = ("forget", document, "--reason", "asked for", "--yes")
    killed(moment, WRITES, *asked)
    for folder in store.root.glob("forgotten/[!.]*"):
        assert {path.name for path in folder.iterdir()} >= {"request.json", "certificate.json"}
    said(*asked)
    assert "certificate.html" in said("gc", "--forgotten")
    (record,) = store.root.glob("forgotten/*/certificate.json")
    assert run.name in json.loads(record.read_text())["deleted"]["runs"]
    assert not list(store.root.glob("forgotten/.*"))


@pytest.mark.parametrize("left", range(1, 4))
def test_a_deletion_that_was_killed_while_it_certifies_ends_in_a_page_that_says_so(
    trained: StoredRun, said: Said, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    """Killed after it wrote so many of its files: those before the deletion, and those after it."""
    store, _ = trained
    said("forget", one_read(*trained)[0], "--reason", "asked for", "--yes")
    moments = iter(range(left))

    def dies(path: Path, content: str) -> None:
        if next(moments, None) is None:
            raise SystemExit
        write_atomically(path, content)

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(certificate, "write_atomically", dies)
        main(["gc", "--forgotten"])
    said("gc", "--forgotten")
    (page,) = store.root.glob("forgotten/*/certificate.html")
    assert "none are left" in page.read_text()


def killed(moment: int, events: str, *arguments: str) -> None:
    """A command that gets SIGKILL at its `moment`th event of these in the store, if it comes so far."""
    command = [sys.executable, "-c", KILLED, str(moment), events, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode in (-signal.SIGKILL, 0), done.stderr


def intact(store: Store) -> dict[str, str]:
    """The data version of every version of a store, by its place."""
    return {
        f"{one.key}/{one.path.name}": one.data_version
        for path in published(store.files)
        for one in [store.open(path.parent.relative_to(store.root).as_posix(), path.name)]
    }


def test_what_a_search_needs_after_a_removal_is_one_sentence(trained: StoredRun, said: Said) -> None:
    text = " ".join(TEXTS[3].split()[:30])
    assert "in the training text" in said("trace", text)
    said("forget", one_read(*trained)[0], "--reason", "asked for", "--yes")
    first = "materialize it (for example with the job `pretrain`) first"
    since = f"has not been made since documents were removed from it (`forget`): {first}"
    for arguments in (["trace", text], ["trace", "--near", text], ["summary"]):
        assert said(*arguments) == f"error: corpora/first/raw {since}\n"
    # what a model read is searched all the same
    assert "in the training text" in said("trace", text, "--checkpoint", f"{trained[1].name[:8]}-00000032")


def test_a_reproduction_does_not_read_what_was_forgotten(
    trained: StoredRun, said: Said, tmp_path: Path
) -> None:
    document, _ = one_read(*trained)
    said("forget", document, "--reason", "asked for", "--yes")
    out = tmp_path / "again"
    printed = said("reproduce", f"{trained[1].name[:8]}-00000032", "-o", str(out))
    assert "# corpus first: documents were removed since then (`forget`), and are not read" in printed
    assert "# corpus second: its source is unchanged" in printed
    recipe, other = load_recipe(out / "recipe.yaml"), Store(out / "home" / "store")
    raw = collect(other, ENGINE, "first", recipe.corpora[0].source, recipe.raw.part_bytes)
    assert raw.counts["set_aside/forgotten"] == 1
    assert not list(out.rglob("certificate.*"))


def test_nothing_goes_while_a_run_trains_on_it(trained: StoredRun, said: Said) -> None:
    store, run = trained
    document, _ = one_read(*trained)
    with RunDirectory(run).locked():
        assert "sets them aside" in said("forget", document, "--reason", "asked for", "--yes")
        there = intact(store)
        assert f"{run} is being trained: stop it, and repeat this" in said("gc", "--forgotten")
        assert intact(store) == there and list(run.glob("checkpoints/*/hf/model.safetensors"))
    said("gc", "--forgotten")
    assert not run.exists()


def test_a_run_that_read_none_of_it_keeps_what_it_is_saving(trained: StoredRun, said: Said) -> None:
    run = trained[1]
    document, _ = one_read(*trained)
    other = shutil.copytree(run, run.with_name("0" * 16))
    config = yaml.safe_load((other / "config.yaml").read_text())
    del config["lineage"]["assets"][keys.token_shards("first")]
    (other / "config.yaml").write_text(yaml.safe_dump(config))
    saving = unpublished(other / "checkpoints" / "step-00000040")
    saving.mkdir()
    (saving / "state.json").write_text("{}")
    said("forget", document, "--reason", "asked for", "--yes")
    with RunDirectory(other).locked():
        said("gc", "--forgotten")
    assert not run.exists() and (saving / "state.json").exists()
