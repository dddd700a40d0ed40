"""From a text to the documents that hold it and the steps that read them; from a step to its documents."""

import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tokenizers import Tokenizer

from pipeline.cli import main
from pipeline.recipe.loading import RECIPE_VARIABLE, load_recipe
from pipeline.steps.lineage.checkpoints import read
from pipeline.steps.lineage.documents import CorpusText
from pipeline.steps.lineage.readers import Training
from pipeline.steps.recipe_versions import store_of
from pipeline.steps.trace.trace import Searcher
from pipeline.steps.training import plan
from pipeline.store import keys
from tests.integration.project import TRAINING
from tests.pipeline.plugins.code import write
from tests.pipeline.steps.corpora import ENGINE, SETTINGS, TEXTS, StoredRun
from tests.pipeline.steps.lineage.conftest import CORPORA, QUICK
from tests.pipeline.steps.make import collect, deduplicate, judge, scrub, tokenize, tokenizer, transform
from tests.rows import jsonl
from trainer.data.shards import Shard
from trainer.data.windows import PADDING
from trainer.system.paths import STORE_VARIABLE

Said = Callable[..., str]


def last(run: Path) -> str:
    return f"{run.name[:8]}-00000032"


def test_passages_cut_anywhere_are_traced_to_their_document(searcher: Searcher) -> None:
    chooser, covered, traced = np.random.default_rng(0), [], 0
    documents = []
    for text, _ in searcher.corpora.values():
        for part in text.scrubbed.parts:
            held = set(text.written(part.name).column("id").to_pylist())
            rows = text.scrubbed.file(part, "documents")
            documents += [row for row in _rows(rows) if row["id"] in held]
    for _ in range(500):
        document = documents[chooser.integers(len(documents))]
        start = int(chooser.integers(len(document["text"]) - 300))
        found = searcher.trace(document["text"][start : start + 300], least=16)
        covered.append(found.covered)
        traced += any(one.document == document["id"] for span in found.spans for one in span.occurrences)
    assert traced == 500 and np.median(covered) >= 0.97


def _rows(path: Any) -> list[dict[str, Any]]:
    from pipeline.store.parquet import read_table

    rows: list[dict[str, Any]] = read_table(path, columns=["id", "text"]).to_pylist()
    return rows


def test_a_span_is_read_at_the_steps_whose_batches_hold_it(trained: StoredRun, searcher: Searcher) -> None:
    training = Training(trained[1])
    tokenizer = Tokenizer.from_file(str(trained[0].current(keys.TOKENIZER).directory() / "tokenizer.json"))
    batches = [training.data.batch(step, 0, 1) for step in range(32)]
    for number in (1, 7, 20):
        row = batches[number][3][:-1]
        inside = tokenizer.decode([int(one) for one in row[20:50]])
        (span, *_) = sorted(searcher.trace(inside, least=8).spans, key=lambda span: -span.tokens)
        size, first = span.tokens, span.occurrences[0]
        text, _ = searcher.corpora[first.corpus]
        shards = np.concatenate([shard.tokens for shard in text.train_shards])
        begin = next(one.begin for one in text.between(0, len(shards)) if one.document == first.document)
        ids = shards[begin + first.token :][:size]
        assert any(number + 1 in (one.steps or ()) for one in span.occurrences)
        for one in span.occurrences:
            held = [
                step + 1
                for step, batch in enumerate(batches)
                if any(
                    (np.lib.stride_tricks.sliding_window_view(row, size) == ids).all(1).any() for row in batch
                )
            ]
            assert one.steps is not None and (span.count > 1 or set(held) <= set(one.steps))


def test_the_rows_of_a_step_are_the_tokens_of_the_documents_that_are_named(
    trained: StoredRun, said: Said
) -> None:
    store, run = trained
    training, assets = Training(run), read(run / "checkpoints" / "step-00000032").lineage["assets"]
    texts = {name: CorpusText(store, assets, name) for name in CORPORA}
    for step in (1, 20, 32):
        found = json.loads(said("lineage", last(run), "--step", str(step), "--json"))
        batch = training.data.batch(step - 1, 0, 1)
        assert len(found["rows"]) == len(batch)
        for row, tokens in zip(found["rows"], batch, strict=True):
            shards = np.concatenate([shard.tokens for shard in texts[row["corpus"]].train_shards])
            begin = row["window"] * 64
            assert np.array_equal(shards[begin : begin + 65], tokens)
            documents = row["documents"]
            assert documents[0]["begin"] <= begin and documents[-1]["end"] >= begin + 65
            assert all(one["end"] == two["begin"] for one, two in itertools.pairwise(documents))


ORDERS: dict[str, dict[str, Any]] = {
    "stages": {
        "seq_len": 1024,
        "stages": [{"name": "short", "seq_len": 256, "share": 0.25}, {"name": "long"}],
    },
    "best_fit": {"seq_len": 2048, "packing": "best_fit"},
    "documents": {"seq_len": 1024, "packing": "documents"},
}
STEPS, BATCH = 32, 65_536  # some twenty epochs


@pytest.fixture(params=ORDERS)
def ordered(trained: StoredRun, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A run of more than three epochs with another order of samples, as it is before its first step."""
    recipe = load_recipe(trained[0].root.parent / "recipe.yaml")
    changed = recipe.model_dump(mode="json", by_alias=True)
    changed["training"] |= {"global_batch_tokens": BATCH, "max_tokens": STEPS * BATCH}
    changed["training"] |= ORDERS[request.param]
    run = plan.plan(trained[0], type(recipe).model_validate(changed))
    run.config.run_dir.mkdir()
    run.write_config()
    yield run.config.run_dir
    shutil.rmtree(run.config.run_dir)


def pieces_of(row: np.ndarray, bot_id: int) -> list[np.ndarray]:
    """The tokens of a row, cut where another document begins or, in a packed row, the rest of one."""
    held, begins = row[row != PADDING], (row == bot_id) | (row < 0)
    held = np.where(held < 0, ~held, held)
    return [piece for piece in np.split(held, np.flatnonzero(begins[: len(held)])) if len(piece)]


def text_of(tokens: np.ndarray) -> str:
    """A letter for each, to be searched fast."""
    return "".join(map(chr, tokens.tolist()))


def test_a_thousand_rows_are_one_by_one_the_parts_of_the_documents_that_are_named(
    trained: StoredRun, ordered: Path, said: Said
) -> None:
    training, rows, several, twice = Training(ordered), 0, 0, 0
    tokenizer = Tokenizer.from_file(str(training.config.data.tokenizer / "tokenizer.json"))
    bot_id = training.config.data.bot_id
    streams = {
        corpus.name: text_of(np.concatenate([Shard(prefix).tokens for prefix in corpus.train]))
        for corpus in training.config.data.corpora
    }
    # of the stages, one step of 256 short rows and twelve of 64 long ones
    every = range(1, STEPS + 1, 2048 // training.config.training.seq_len)
    for step in range(7, STEPS, 2) if training.config.training.stages else every:
        batch = training.data.batch(step - 1, 0, 1)
        found = json.loads(said("lineage", f"{ordered.name}-{step}", "--step", str(step), "--json"))["rows"]
        for row, tokens in zip(found, batch, strict=True):
            pieces = pieces_of(tokens, bot_id)
            several += len(pieces) > 1
            rows += 1
            ids = [~one if one < 0 else one for one in tokens.tolist() if one != PADDING]
            assert row["text"] == tokenizer.decode(ids, skip_special_tokens=False)
            if len(pieces) > len(row["documents"]):  # two pieces of a document, which is named once
                twice += 1
                continue
            for piece, held in zip(pieces, row["documents"], strict=True):
                document = streams[row["corpus"]][held["begin"] : held["end"]]
                assert document[0] == chr(bot_id) and document.count(chr(bot_id)) == 1
                assert text_of(piece) in document
    assert rows == 1024 and several > 50
    assert twice < (100 if training.config.training.packing == "documents" else 1)


def test_the_steps_that_read_a_token_are_those_of_an_enumeration_of_three_epochs(
    trained: StoredRun, ordered: Path
) -> None:
    training, chooser = Training(ordered), np.random.default_rng(0)
    curriculum, length = training.config.training.curriculum, training.data.order.part_len
    parts: dict[str, list[tuple[int, int, int]]] = {name: [] for name in CORPORA}  # begin, end, number
    steps = []
    for sample in range(curriculum.samples(STEPS)):
        corpus, _, pieces = training.data.sample(sample)
        if training.config.training.packing == "windows":
            ((begin, end),) = pieces
            cut = [[(place, place + length + 1)] for place in range(begin, end - 1, length)]
        else:
            cut = [pieces]
        for held in cut:
            parts[corpus] += [(*tokens, len(steps)) for tokens in held]
            steps.append(curriculum.step_reading(sample) + 1)
    for name, found in parts.items():
        begins, ends, numbers = np.array(found).T
        size = trained[0].current(keys.token_shards(name)).counts["train_tokens"]
        assert (ends - begins).sum() > 3 * size
        for until, width in itertools.product((1, 9, 20, STEPS), (1, 2, 40, 700)):
            for begin in chooser.integers(0, size - width, 10).tolist():
                held_by = np.unique(numbers[(begins < begin + width) & (ends > begin)]).tolist()
                read = [steps[number] for number in held_by if steps[number] <= until]
                said = training.steps(name, begin, begin + width, until)
                assert sorted(said.tolist()) == sorted(read)


def test_a_run_at_the_edge_of_two_windows_was_read_with_the_one_that_goes_on_with_it(
    trained: StoredRun, searcher: Searcher
) -> None:
    data = Training(trained[1]).data
    corpora, windows = data.order.windows(0, 256)
    windows = windows[corpora == data.order.names.index("first")]
    text, _ = searcher.corpora["first"]
    stream = np.concatenate([shard.tokens for shard in text.train_shards]).astype(np.int64)
    edges = 0
    for window in windows.tolist():
        ids = stream[window * 64 : window * 64 + 60]
        if sum(index.count(ids) for _, index in searcher.corpora.values()) == 1:
            assert searcher.readings(ids) == 1
            edges += window - 1 in windows
    assert edges


def test_rows_are_ranked_by_the_loss_of_the_checkpoint_before(trained: StoredRun, said: Said) -> None:
    found = json.loads(said("lineage", last(trained[1]), "--step", "25", "--losses", "--json"))
    losses = [row["loss"] for row in found["rows"]]
    assert found["losses_by"] == "step-00000024" and losses == sorted(losses, reverse=True)
    logged = [json.loads(line) for line in (trained[1] / "metrics.jsonl").read_text().splitlines()]
    (step,) = [one for one in logged if one["kind"] == "train" and one["step"] == 25]
    assert np.mean(losses) == pytest.approx(step["loss"], abs=0.01)
    printed = said("lineage", last(trained[1]), "--step", "30", "--losses")
    assert "the highest first" in printed and "step-00000024" in printed


def test_text_is_found_as_it_was_scrubbed_and_without_its_leading_space(
    trained: StoredRun, searcher: Searcher, said: Said
) -> None:
    text, _ = searcher.corpora["first"]
    training = Training(trained[1])
    place = next(place for place in range(0, 9000, 64) if len(training.steps("first", place, place + 40, 32)))
    document = text.at(place + 20).document
    whole = next(
        one["text"]
        for file in text.scrubbed.files("documents")
        for one in _rows(file)
        if one["id"] == document
    )
    begin = (
        (place + 20 - text.at(place + 20).begin)
        * len(whole)
        // (text.at(place + 20).end - text.at(place + 20).begin)
    )
    part, name = whole[begin : begin + 300].strip(), last(trained[1])
    assert int(said("trace", part, "--count").split()[0]) >= 1
    found = json.loads(said("trace", part, "--checkpoint", name, "--json"))[0]
    (span, *_) = sorted(found["spans"], key=lambda span: -span["tokens"])
    assert span["text"] in part and found["covered"] > 0.95
    assert document in [one["document"] for one in span["occurrences"]]
    assert ": these tokens were read at step " in said("trace", part, "--checkpoint", name)
    lines = part.replace("\n", "\r\n")
    assert "\r" in lines and said("trace", lines, "--count") == said("trace", part, "--count")
    mail = "Write to jane.doe@gmail.com"
    assert list(searcher._prepared(mail)) == ["Write to [EMAIL]"]
    assert "no 16 tokens of it occur together" in said("trace", "Zqx jvk wpf, " * 9)
    assert said("trace", "Zqx jvk wpf, " * 9, "--count").startswith("0 ")


def test_a_span_longer_than_the_text_is_in_no_text(searcher: Searcher) -> None:
    for _, index in searcher.corpora.values():
        assert index.runs(np.array([5, 6]), 10**20).tolist() == [0, 0]


def test_a_document_tells_its_first_and_last_step_and_what_removing_it_would_remake(
    trained: StoredRun, searcher: Searcher, said: Said
) -> None:
    text, _ = searcher.corpora["first"]
    held = text.at(1000)
    (found,) = [
        one
        for one in json.loads(said("lineage", "--document", held.document, "--json"))
        if one["checkpoint"] == last(trained[1])
    ]
    steps = np.unique(Training(trained[1]).steps("first", held.begin, held.end, 32)).tolist()
    assert steps and (found["steps"], found["first"], found["last"]) == (len(steps), steps[0], steps[-1])
    shown = said("lineage", "--document", held.document)
    assert f"{held.document}: in the training text" in shown and "removing" in shown
    assert "1 training run, " in shown and f"token_index/{held.corpus}" in shown


MODULE = """
    from pipeline.plugins import document_transform

    @document_transform
    def old(document):
        return document.text.replace("the ", "ye ")
"""
CLAUSES = " ".join(f"Clause {number} binds whoever signs page {number * 7}." for number in range(12))
MAIL = f"all of it: {CLAUSES} Write to jane.doe@gmail.com before noon, since nobody answers after that hour."


@pytest.fixture
def treated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Any:
    """What `trace` finds where `first` is transformed, and `second` keeps its addresses. The first document
    of each ends with MAIL, after a space and on a line of its own.
    """
    write(tmp_path, "own_code", MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "store"))
    monkeypatch.setenv(RECIPE_VARIABLE, str(tmp_path / "recipe.yaml"))
    texts = {"first": TEXTS[:10], "second": TEXTS[10:20]}
    first, second = ({"name": one, "source": {"kind": "files", "paths": [f"{one}.jsonl"]}} for one in texts)
    settings = {
        "name": "treated",
        "corpora": [first, second | {"scrub": {"kinds": []}}],
        "transforms": [{"python": "own_code:old", "version": "1", "corpora": ["first"]}],
        "tokenizer": {"vocab_size": 300},
        "shards": {"validation_fraction": 0.01},
        "training": TRAINING | QUICK,
        **SETTINGS,
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(settings))
    recipe = load_recipe(tmp_path / "recipe.yaml")
    store = store_of(recipe)
    for corpus in recipe.corpora:
        rules, read, (ending, *others) = recipe.rules(corpus.name), None, texts[corpus.name]
        before = " " if recipe.is_transformed(corpus.name) else "\n"
        rows = [{"text": text} for text in (f"{ending}{before}{MAIL}", *others)]
        jsonl(tmp_path / f"{corpus.name}.jsonl", *rows)
        collect(store, ENGINE, corpus.name, corpus.source, recipe.raw.part_bytes)
        if recipe.is_transformed(corpus.name):
            read = transform(store, ENGINE, corpus.name, recipe.transforms).key
        scrub(store, ENGINE, corpus.name, rules.scrub, read)
        judge(store, ENGINE, corpus.name, rules.quality)
    deduplicate(store, ENGINE, recipe.corpus_names, recipe.dedup)
    tokenizer(store, ENGINE, recipe.name, recipe.corpus_names, recipe.tokenizer, 0.01)
    for name in recipe.corpus_names:
        tokenize(store, ENGINE, name, recipe.shards)

    def said(*arguments: str) -> Any:
        assert main(["trace", *arguments, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return said


def test_a_quote_is_found_as_each_corpus_treats_its_text(treated: Any) -> None:
    start = TEXTS[0].index(" the ")
    (found,) = treated(TEXTS[0][start : start + 400])
    span = max(found["spans"], key=lambda span: span["tokens"])
    assert " ye " in span["text"] and " the " not in span["text"] and found["covered"] > 0.98
    assert [one["corpus"] for one in span["occurrences"]] == ["first"]
    (found,) = treated(MAIL)
    corpora = {span["text"]: [one["corpus"] for one in span["occurrences"]] for span in found["spans"]}
    assert corpora == {MAIL.replace("jane.doe@gmail.com", "[EMAIL]"): ["first"], MAIL: ["second"]}


@pytest.mark.parametrize("text", [CLAUSES, f"all of it: {CLAUSES}", f"{CLAUSES}Zq: john.roe@gmail.com"])
def test_occurrences_are_counted_once_in_every_corpus_after_a_space_and_without_one(
    treated: Any, text: str
) -> None:
    ((span,),) = (found["spans"] for found in treated(text))
    assert {one["corpus"] for one in span["occurrences"]} == {"first", "second"}
    assert span["count"] == len(span["occurrences"]) == 2
    assert treated(span["text"], "--count") == {"in the training text": 2}
