"""From a checkpoint back to all that made it, and from a corpus or document to checkpoints that saw it."""

import json
import platform
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow.parquet as pq
import pytest

from pipeline.assets import checkpoints
from pipeline.assets.used_recipe import CHECKPOINT, OWN
from pipeline.cli import main
from pipeline.cli.lineage import described
from pipeline.recipe.loading import load_recipe
from pipeline.stages.bpe.params import ExistingTokenizer
from pipeline.steps.lineage.checkpoints import Checkpoint, LineageError, TrainedModel, read, run_config
from pipeline.steps.lineage.documents import CorpusText
from pipeline.steps.reproduce import pinned_recipe, reproduce
from pipeline.steps.training import plan
from pipeline.store import keys
from pipeline.store.params import Anchored
from pipeline.store.store import Store
from tests.pipeline.steps.corpora import ENGINE, StoredRun
from tests.pipeline.steps.make import collect
from trainer.data.loader import TrainingData
from trainer.system.paths import STORE_VARIABLE


def test_a_checkpoint_says_what_it_was_made_from(trained: StoredRun, ask: Any) -> None:
    store, run = trained
    said, found = ask(f"{run.name[:8]}-00000032"), json.loads(ask(f"{run.name[:8]}-00000032", "--json"))
    scrubbed = store.current(keys.scrubbed("first"))
    assert found["assets"]["corpora/first/scrubbed"]["data_version"] == scrubbed.data_version
    assert found["assets"]["corpora/first/scrubbed"]["params"] == scrubbed.manifest["params"]
    assert found["assets"]["corpora/first/raw"]["inputs"]["source"]
    assert sum(found["training"]["corpus_tokens"].values()) == found["training"]["tokens"] == 16_384
    for words in (
        scrubbed.data_version[:12],
        f"{scrubbed.counts['spans']:,} spans",
        "torch",
        "vocab_size",
        "corpus first",
        "epochs",
    ):
        assert words in said


def test_a_person_reads_what_differs_from_the_defaults_in_lines_that_fit_the_terminal(
    trained: StoredRun, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = ask(f"{trained[1].name[:8]}-00000032")
    settings = said.partition("settings that differ from the defaults")[2]
    for words in ("profile docs", "validation_fraction 0.2", "vocab_size 300", "max_tokens 16,384"):
        assert words in settings
    for unchanged in ("null", "max_grad_norm", "keep_last 3", "parallel", "dedup", "min_words"):
        assert unchanged not in settings
    assert all(len(line) <= 80 or "/" in line for line in said.splitlines())


def test_a_step_whose_weights_were_deleted_still_has_a_lineage(trained: StoredRun, ask: Any) -> None:
    run = trained[1]
    assert not (run / "checkpoints" / "step-00000008").exists()
    found = json.loads(ask(f"{run.name[:8]}/8", "--json"))
    assert not found["saved"] and sum(found["training"]["corpus_tokens"].values()) == 4096
    saved = json.loads((run / "checkpoints" / "step-00000032" / "lineage.json").read_text())
    assert (
        json.loads(ask(f"{run.name[:8]}/32", "--json"))["training"]["corpus_tokens"]
        == saved["training"]["corpus_tokens"]
    )


def test_what_is_no_checkpoint_is_answered_with_those_there_are(trained: StoredRun, ask: Any) -> None:
    assert f"{trained[1].name[:8]}-00000032" in ask("nothing")
    assert "steps 1 to 32" in ask(f"{trained[1].name[:8]}/33")
    assert ask("--document", "nothing").startswith("error: ")


def test_a_corpus_names_the_checkpoints_that_saw_it_at_a_version(trained: StoredRun, ask: Any) -> None:
    raw = trained[0].current(keys.raw("first")).data_version
    found = json.loads(ask("--corpus", "first", "--version", raw[:10], "--json"))
    assert [one["checkpoint"][-8:] for one in found] == ["00000024", "00000032"]
    assert all(one["raw"] == raw and one["tokens"] > 0 for one in found)
    assert json.loads(ask("--corpus", "first", "--version", "0123456789ab", "--json")) == []


def test_a_document_was_read_at_the_steps_whose_batches_held_it(trained: StoredRun, ask: Any) -> None:
    store, run = trained
    (decisions,) = [
        pq.read_table(path).to_pylist()
        for path in store.current(keys.DEDUP).files("decisions")
        if path.name.startswith("first.")
    ]
    config = run_config(run)
    data = TrainingData(config.data, config.training, run / "packing")
    corpus, curriculum = data.order.names.index("first"), config.training.curriculum
    corpora, windows = data.order.windows(0, curriculum.samples(32))
    text = CorpusText(store, read(run / "checkpoints" / "step-00000032").lineage["assets"], "first")
    spans = {held.document: held for held in text.between(0, text.train_shards[0].num_tokens)}
    kept = [row["id"] for row in decisions if row["keep"]]
    answers = {document: json.loads(ask("--document", document, "--json"))[-1] for document in kept}
    assert 0 < len(spans) < len(kept) and any(one["steps"] for one in answers.values())
    for document, one in answers.items():
        held = spans.get(document)
        fate = "in the training text" if held else "held out for validation"
        assert one["fates"] == {document: fate}
        samples = [
            sample
            for sample, (of, window) in enumerate(zip(corpora, windows, strict=True))
            if held and of == corpus and window * 64 < held.end and window * 64 + 65 > held.begin
        ]
        steps = sorted({curriculum.step_reading(sample) + 1 for sample in samples})
        assert one["steps"] == len(steps)
        assert (one["first"], one["last"]) == ((steps[0], steps[-1]) if steps else (None, None))


def test_a_removed_document_says_why_and_was_never_trained_on(trained: StoredRun, ask: Any) -> None:
    decisions = [
        row
        for path in trained[0].current(keys.DEDUP).files("decisions")
        for row in pq.read_table(path).to_pylist()
    ]
    removed = next(row for row in decisions if not row["keep"])
    found = json.loads(ask("--document", removed["id"], "--json"))
    assert all(removed["duplicate_of"] in one["fates"][removed["id"]] and not one["steps"] for one in found)
    said = ask("--document", removed["id"])
    assert removed["duplicate_of"] in said and "no checkpoint on disk has read them" in said


def entry(trained: StoredRun, checkpoint: Path) -> dict[str, Any]:
    """The metadata of the entry that training adds when the trainer says that it saved step 24 there."""
    store = trained[0]
    run = plan.plan(store, load_recipe(store.root.parent / "recipe.yaml"))
    message = {"step": 24, "tokens": 24 * 512, "path": str(checkpoint), "data_version": "weights"}

    @dg.asset
    def training(context: dg.AssetExecutionContext) -> None:
        checkpoints.record(context, run, message, [], OWN)

    with dg.DagsterInstance.ephemeral() as instance:
        assert dg.materialize([training], instance=instance).success
        event = (
            instance.fetch_materializations(OWN.asset(CHECKPOINT), limit=1).records[0].asset_materialization
        )
    assert event is not None
    found = {name: value.value for name, value in event.metadata.items()}
    of_corpora = {
        table: {record.data["corpus"]: record.data for record in found[table].records}
        for table in ("corpora", "epochs of corpora")
    }
    return found | of_corpora


def test_the_entry_in_the_ui_says_the_same(trained: StoredRun) -> None:
    store, run = trained
    found = entry(trained, run / "checkpoints" / "step-00000024")
    rows = found["corpora"]
    assert sum(row["tokens until then"] for row in rows.values()) == 24 * 512
    raw = found["epochs of corpora"]["first"]["raw"]
    assert raw and store.current(keys.raw("first")).data_version.startswith(raw)
    assert rows["second"]["kept by quality"] - rows["second"]["kept by dedup"] == 1
    assert (
        f"torch {version('torch')}" in found["libraries"]
        and f"python {platform.python_version()}" in found["libraries"]
    )


def test_a_checkpoint_tells_the_libraries_that_trained_it_and_not_those_of_its_tokenizer(
    trained: StoredRun, tmp_path: Path
) -> None:
    saved = read(trained[1] / "checkpoints" / "step-00000024")
    frozen_long_ago = {"python": "3.10.1", "torch": "1.0"}
    saved.lineage["assets"]["tokenizer"]["tools"] = frozen_long_ago
    (libraries,) = [line for line in described(saved) if line.startswith("libraries")]
    assert f"python {platform.python_version()}" in libraries and f"torch {version('torch')}" in libraries
    commands = reproduce.write(trained[0], saved, out=tmp_path / "again", relative_to=tmp_path)
    assert any(
        line.endswith(f"PYTHON=python{platform.python_version().rpartition('.')[0]}") for line in commands
    )


def test_reproduce_pins_the_recipe_to_the_step(
    trained: StoredRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    store, run = trained
    monkeypatch.setenv(STORE_VARIABLE, str(store.root))
    monkeypatch.setenv("GROUNDWORK_RECIPE", str(store.root.parent / "recipe.yaml"))
    assert main(["reproduce", f"{run.name[:8]}-00000024", "-o", str(tmp_path / "again")]) == 0
    said = capsys.readouterr().out
    recipe = load_recipe(tmp_path / "again" / "recipe.yaml")
    assert recipe.corpora[0].source.model_dump()["paths"] == (str(store.root.parent / "first.jsonl"),)
    assert recipe.training.checkpoint.every_tokens == 24 * 512
    assert "worktree add" in said and "make -C" in said and "reproduce --compare" in said and run.name in said
    assert (
        recipe.training.threads
        == read(run / "checkpoints" / "step-00000024").lineage["training"]["machine"]["threads"]
    )
    sums = (tmp_path / "again" / "SHA256SUMS").read_text()
    assert (
        subprocess.run(
            ["sha256sum", "--check"],
            input=sums,
            text=True,
            cwd=run / "checkpoints" / "step-00000024",
            check=False,
        ).returncode
        == 0
    )
    again = plan.plan(store, recipe)
    assert again.config.run_dir == run  # it is the same run, by everything that decides the weights


def compared(out: Path, again: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    status = main(["reproduce", "--compare", str(out), str(again)])
    return status, "".join(capsys.readouterr())


def test_what_was_made_again_is_compared_to_the_byte_or_by_its_losses(
    trained: StoredRun, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, run = trained
    monkeypatch.setenv(STORE_VARIABLE, str(store.root))
    made = run / "checkpoints" / "step-00000024"
    out = tmp_path / "out"
    reproduce.write(store, read(made), out=out, relative_to=tmp_path)
    assert compared(out, made, capsys) == (0, "the same bytes: hf/model.safetensors, optimizer.safetensors\n")

    assert compared(out, Path(f"{run.name[:8]}-00000024"), capsys)[0] == 0
    status, said = compared(out, Path(f"{run.name[:8]}-00000999"), capsys)
    assert status == 2 and "is not on disk" in said

    other = tmp_path / "other"
    shutil.copytree(made, other)
    with (other / "hf" / "model.safetensors").open("ab") as weights:
        weights.write(b"rounded otherwise")
    status, said = compared(out, other, capsys)
    assert status == 0 and said.startswith("the same up to rounding, not to the byte: loss ")

    state = json.loads((other / "state.json").read_text())
    (other / "state.json").write_text(json.dumps(state | {"loss": state["loss"] + 0.1}))
    status, said = compared(out, other, capsys)
    assert status == 2 and "another model: loss " in said
    (other / "state.json").write_text(json.dumps(state | {"evaluation": None}))
    held_out = state["evaluation"] is not None
    status, said = compared(out, other, capsys)
    assert status == (2 if held_out else 0) and len(said.splitlines()) == 1
    status, said = compared(tmp_path / "nowhere", other, capsys)
    assert status == 2 and "cannot compare" in said


def test_a_checkpoint_of_another_training_is_not_taken_for_the_same_up_to_rounding(
    trained: StoredRun, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Its losses may be as near: those of another seed mostly are."""
    store, run = trained
    made, out, other = run / "checkpoints" / "step-00000024", tmp_path / "out", tmp_path / "other"
    reproduce.write(store, read(made), out=out, relative_to=tmp_path)
    shutil.copytree(made, other)
    with (other / "hf" / "model.safetensors").open("ab") as weights:
        weights.write(b" ")
    lineage = json.loads((other / "lineage.json").read_text())
    assert compared(out, other, capsys)[1].startswith("the same up to rounding")
    for settings, told in (
        ({"config": lineage["training"]["config"] | {"seed": 9}}, "training.seed "),
        ({"tokens": lineage["training"]["tokens"] - 512}, "tokens "),
    ):
        changed = lineage | {"training": lineage["training"] | settings}
        (other / "lineage.json").write_text(json.dumps(changed))
        status, said = compared(out, other, capsys)
        assert status == 2 and f"another training: {told}" in said
    (out / "SETTINGS.json").unlink()  # as an earlier version wrote it
    assert compared(out, other, capsys)[0] == 0


def test_every_path_that_starts_at_the_recipe_is_whole_in_the_recipe_of_a_reproduction(
    trained: StoredRun, tmp_path: Path
) -> None:
    def with_files(directory: str, text: str) -> dict[str, Any]:
        """Settings with a file in each place where a recipe can name one."""
        files = {"kind": "files", "paths": [f"{directory}{text}", "s3://bucket/text.jsonl"]}
        questions = {"name": "mine", "path": f"{directory}questions.jsonl"}
        classifier = {"name": "good", "fasttext": f"{directory}good.bin", "label": "__label__hq"}
        own_code = {"name": "own", "python": "mine:Filter", "version": "1", "params": {"path": "as it is"}}
        return {
            "quality": {"language_model": f"{directory}languages.bin", "filters": [classifier, own_code]},
            "evaluation": {"texts": [{"name": "held", "source": files}], "benchmarks": [questions]},
            "decontamination": {"sets": [{"name": "held", "source": files}]},
        }

    saved = read(trained[1] / "checkpoints" / "step-00000024")
    recipe = saved.lineage["recipe"]
    recipe.update(with_files("", "held.jsonl"))
    recipe["training"]["pretrained"] = {"path": "weights", "repo": None}
    reproduced = pinned_recipe.pinned([saved], tmp_path)
    for section, expected in with_files(f"{tmp_path}/", "held.jsonl").items():
        assert reproduced[section] == expected
    assert reproduced["training"]["pretrained"]["path"] == str(tmp_path / "weights")
    assert reproduced["corpora"][0]["source"]["paths"][0].startswith("/")


def test_reproduce_knows_every_setting_that_names_a_file() -> None:
    """Each class whose paths start at the recipe has a field of these names."""

    def subclasses(kind: type) -> set[type]:
        return {kind}.union(*map(subclasses, kind.__subclasses__()))

    for kind in subclasses(Anchored) - {Anchored, ExistingTokenizer}:  # whose tokenizer is copied
        assert {*pinned_recipe.PATHS} & kind.model_fields.keys(), kind  # type: ignore[attr-defined]


def test_a_run_without_a_step_is_its_newest_checkpoint_and_an_unknown_one_is_refused(
    trained: StoredRun, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, run = trained
    monkeypatch.setenv(STORE_VARIABLE, str(store.root))
    shutil.copytree(run, store.root / "runs" / ("f" * 16))  # whose checkpoints are last by name
    name = run.name[:8]
    try:
        assert main(["lineage", name]) == 0
        assert f"{name}-00000032" in capsys.readouterr().out
    finally:
        shutil.rmtree(store.root / "runs" / ("f" * 16))
    assert main(["keep", "nosuch"]) == 2
    assert "nosuch: neither a run nor a checkpoint of one. Give " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        (None, "is not recorded"),
        ({"device": "cuda", "threads": 1, "processor": "x"}, "made on a GPU"),
        (
            {"device": "cpu", "threads": 1, "processor": "Another", "instructions": ["avx2"], "limits": {}},
            "made on Another, and this processor rounds differently (instructions avx2 then",
        ),
    ],
)
def test_reproduce_says_where_this_machine_gives_other_bytes(
    trained: StoredRun, tmp_path: Path, machine: dict[str, Any] | None, said: str
) -> None:
    saved = read(trained[1] / "checkpoints" / "step-00000024")
    here = reproduce.write(trained[0], saved, out=tmp_path / "here", relative_to=tmp_path)
    assert not any("rounds differently" in line or "recorded" in line for line in here)
    saved.lineage["training"]["machine"] = machine
    if machine is None:
        del saved.lineage["training"]["machine"]
    assert any(
        said in line
        for line in reproduce.write(trained[0], saved, out=tmp_path / "there", relative_to=tmp_path)
    )


def test_reproduce_makes_a_directory_named_like_the_checkpoint_and_a_store_of_its_own(
    trained: StoredRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    store, run = trained
    monkeypatch.setenv(STORE_VARIABLE, str(store.root))
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", f"{run.name[:8]}-00000024"]) == 0
    out = tmp_path / f"{run.name[:8]}-00000024"
    said = capsys.readouterr().out
    assert (out / "recipe.yaml").is_file() and str(out) in said.splitlines()[0]
    (export,) = [line for line in said.splitlines() if line.startswith("export ")]
    asked = subprocess.run(["bash", "-euc", f"{export}; env"], capture_output=True, text=True, check=True)
    assert f"GROUNDWORK_STORE={out / 'home' / 'store'}\n" in asked.stdout


def test_reproduce_says_which_urls_are_to_be_completed(trained: StoredRun, tmp_path: Path) -> None:
    saved = read(trained[1] / "checkpoints" / "step-00000024")
    saved.lineage["recipe"]["corpora"][0]["source"]["paths"] = ["https://store.example/first.jsonl?..."]
    commands = reproduce.write(trained[0], saved, out=tmp_path / "again", relative_to=tmp_path)
    assert any("corpus first" in line and "complete them" in line for line in commands)


def test_reproduce_reads_the_stored_documents_of_a_corpus_that_has_changed(
    trained: StoredRun, tmp_path: Path
) -> None:
    store, run = trained
    path, saved = store.root.parent / "first.jsonl", read(run / "checkpoints" / "step-00000024")
    before = path.read_bytes()
    path.write_bytes(before.partition(b"\n")[2])  # its first document is gone
    try:
        said = reproduce.write(store, saved, out=tmp_path / "again", relative_to=path.parent)
    finally:
        path.write_bytes(before)
    assert "# corpus second: its source is unchanged" in said
    assert any(line.startswith("# corpus first: its source has changed since; ") for line in said)
    recipe, other = load_recipe(tmp_path / "again" / "recipe.yaml"), Store(tmp_path / "other")
    assert [corpus.source.kind for corpus in recipe.corpora] == ["stored", "files"]
    raw = collect(other, ENGINE, "first", recipe.corpora[0].source, recipe.raw.part_bytes)
    assert raw.data_version == saved.lineage["assets"]["corpora/first/raw"]["data_version"]
    assert raw.counts == store.open(keys.raw("first"), raw_name(saved)).counts
    gone = reproduce.write(Store(tmp_path / "empty"), saved, out=tmp_path / "gone", relative_to=tmp_path)
    assert any("cannot be looked at now" in line and "the bytes will differ" in line for line in gone)


def raw_name(saved: Checkpoint) -> str:
    return Path(saved.lineage["assets"]["corpora/first/raw"]["path"]).name


def test_reproduce_finds_the_run_that_an_older_tokenizer_renames(trained: StoredRun, tmp_path: Path) -> None:
    saved = read(trained[1] / "checkpoints" / "step-00000024")
    saved.lineage["assets"]["tokenizer"]["inputs"]["corpora/first/scrubbed"] = "an earlier version"
    said = reproduce.write(trained[0], saved, out=tmp_path / "again", relative_to=trained[0].root.parent)
    (place,) = [line.split()[-1] for line in said if "--compare" in line]
    made = tmp_path / "again" / "home" / "store" / "runs" / "another" / "checkpoints" / "step-00000024"
    made.mkdir(parents=True)
    found = subprocess.run(["bash", "-euc", f"cd {place}; pwd"], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str(made)


def test_a_corpus_of_which_nothing_was_drawn_yet_was_seen_not_at_all() -> None:
    assets = {"token_shards/first": {"counts": {"train_tokens": 4}}}
    assert TrainedModel({"training": {"corpus_tokens": {}}, "assets": assets}).epochs("first") == 0


# Valid JSON in which only one value has another form.
OTHER_FORMS = [
    b'{"training": {"step": 32}, %s}' % other
    for other in (b'"assets": []', b'"assets": {"tokenizer": "x"}', b'"recipe": "mine"', b'"recipe": null')
]


@pytest.mark.parametrize(
    "content", [None, b"", b'{"training": {', b"{}", b"[]", b"null", b"\xff", *OTHER_FORMS]
)
def test_a_lineage_that_is_missing_or_damaged_is_named_with_the_remedy(
    trained: StoredRun, tmp_path: Path, content: bytes | None
) -> None:
    """Whatever is left of it, every command that reads all checkpoints meets it."""
    checkpoint = tmp_path / "run" / "checkpoints" / "step-00000032"
    shutil.copytree(trained[1] / "checkpoints" / "step-00000032", checkpoint)
    path = checkpoint / "lineage.json"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LineageError) as raised:
        read(checkpoint)
    said = str(raised.value)
    assert said.startswith(f"{path} is missing or damaged (")
    assert said.endswith(f"): put it back from a copy, or remove {checkpoint}")
