"""What reproduce writes and compares."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli import main
from pipeline.recipe.loading import load_recipe
from pipeline.stages.bpe.params import ExistingTokenizer
from pipeline.steps.lineage.checkpoints import Checkpoint, read
from pipeline.steps.reproduce import pinned_recipe, reproduce
from pipeline.steps.training import plan
from pipeline.store import keys
from pipeline.store.params import Anchored
from pipeline.store.store import Store
from tests.pipeline.steps.corpora import ENGINE, StoredRun
from tests.pipeline.steps.make import collect
from trainer.system.paths import STORE_VARIABLE


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
