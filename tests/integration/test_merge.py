"""A recipe whose model is the mean of its last checkpoints, and checkpoints that are merged by hand."""

import shutil
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file

from pipeline.cli import main
from pipeline.steps.lineage.checkpoints import checkpoint
from pipeline.steps.lineage.readers import readings
from pipeline.steps.reproduce.reproduce import write
from pipeline.steps.training import plan
from pipeline.store import keys
from pipeline.store.cleanup import gc
from pipeline.store.cleanup.holding_forgotten import holding
from pipeline.store.cleanup.old_runs import Limits
from pipeline.store.errors import PipelineError
from pipeline.store.forgotten import among
from pipeline.store.training_runs import checkpoint_name, run_histories
from tests.integration.project import Project, make_chat_project, make_project
from tests.pipeline.steps.export.hub_server import UploadHub
from tests.servers import serving

WEIGHTS = "hf/model.safetensors"


@pytest.fixture(scope="module")
def averaged(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = make_project(tmp_path_factory.mktemp("averaged"))
    project.recipe["training"]["averaging"] = {"checkpoints": 3, "every_tokens": 2048}
    project.make()
    return project


def mean_and_parents(project: Project) -> tuple[Path, list[Path]]:
    store = project.store
    mean = plan.result(store, store.current(keys.PRETRAINED_MODEL))["checkpoint"]
    (trained,) = [run for run in run_histories(store) if run.path != mean.parents[1]]
    return mean, [trained.checkpoints()[step] for step in (24, 28, 32)]


def is_mean_of(mean: Path, parents: list[Path]) -> bool:
    held = [load_file(path / WEIGHTS) for path in parents]
    made = load_file(mean / WEIGHTS)
    return all(torch.equal(made[name], torch.stack([one[name] for one in held]).mean(0)) for name in made)


@pytest.mark.slow
def test_the_mean_is_the_model_of_the_recipe(
    averaged: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    averaged.enter(monkeypatch)
    mean, parents = mean_and_parents(averaged)
    assert is_mean_of(mean, parents)
    exported = averaged.store.current(keys.EXPORTED_MODEL)
    assert (exported.path / "model.safetensors").read_bytes() == (mean / WEIGHTS).read_bytes()
    card = (exported.path / "README.md").read_text()
    assert "the mean of 3 checkpoints, after 12,288 to 16,384 tokens" in card
    assert main(["lineage", checkpoint_name(mean)]) == 0
    shown = capsys.readouterr().out
    assert all(f"{checkpoint_name(path)}, 33.3%" in shown for path in parents)
    assert "training.checkpoint.optimizer" not in shown  # no setting gives a mean one
    assert main(["summary"]) == 0
    assert main(["compare", *(checkpoint_name(path) for path in (mean, parents[-1]))]) == 0


@pytest.mark.slow
def test_another_number_of_checkpoints_trains_nothing_again(averaged: Project, tmp_path: Path) -> None:
    project = averaged.copied(tmp_path / "project")
    _, parents = mean_and_parents(averaged)
    run = project.store.root / "runs" / parents[0].parents[1].name
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*.safetensors")}
    for averaging, merged in (({"checkpoints": 2, "every_tokens": 2048}, parents[1:]), (None, None)):
        project.recipe["training"]["averaging"] = averaging
        project.make()
        final = plan.result(project.store, project.store.current(keys.PRETRAINED_MODEL))["checkpoint"]
        assert is_mean_of(final, merged) if merged else final.parents[1] == run
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*.safetensors")} == before
    project.recipe["training"]["averaging"] = {"checkpoints": 5, "every_tokens": 2048}
    status, said = project.run()
    assert status == 1 and "is not on disk" in said and "of the newest there are 3" in said


@pytest.mark.slow
def test_checkpoints_are_merged_by_hand_and_the_mean_outlives_them(
    averaged: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = averaged.copied(tmp_path / "project")
    _, parents = mean_and_parents(averaged)
    project.recipe["training"] |= {"seed": 2, "averaging": None}
    project.make()
    project.enter(monkeypatch)
    (other,) = {one.path for one in run_histories(project.store)} - {
        project.store.root / "runs" / path.parents[1].name
        for path in (mean_and_parents(averaged)[0], parents[0])
    }
    named = [checkpoint_name(parents[-1]), f"{other.name[:8]}-00000024"]
    capsys.readouterr()
    assert main(["merge", *named, "--weights", "3,1"]) == 0
    said = capsys.readouterr().out
    name = said.partition(":")[0]
    found = checkpoint(project.store, name)
    assert [(one["checkpoint"], one["share"]) for one in found.merged] == [(named[0], 0.75), (named[1], 0.25)]
    held = [load_file(checkpoint(project.store, one).path / WEIGHTS)["model.norm.weight"] for one in named]
    made = load_file(found.path / WEIGHTS)["model.norm.weight"]
    assert torch.equal(made, (torch.stack(held) * torch.tensor([0.75, 0.25])[:, None]).sum(0))
    # what the recipe uses is what it trained
    assert plan.last_checkpoint(project.store).run == other
    export = next(line for line in said.splitlines() if line.startswith("export: ")).removeprefix("export: ")
    assert (Path(export) / "model.safetensors").read_bytes() == (found.path / WEIGHTS).read_bytes()
    # again, nothing is made
    assert main(["merge", *named, "--weights", "3,1"]) == 0
    assert capsys.readouterr().out == said

    # what either training read was read by the mean, also once that training is gone
    store = project.store
    parts = store.current(keys.raw("topics")).files("documents")
    documents = {one for part in parts for one in pq.read_table(part, columns=["id"])["id"].to_pylist()}

    def read_by_mean() -> dict[str | None, int | None]:
        return {one.through: one.steps for one in readings(store, documents) if one.checkpoint == name}

    steps = read_by_mean()
    through = "tiny after 12,288 tokens"
    commands = write(store, found, out=tmp_path / "both", relative_to=tmp_path)
    assert {path.parent.name for path in tmp_path.glob("both/*/recipe.yaml")} == {
        parents[-1].parents[1].name,
        other.name,
    }
    (merging,) = [line for line in commands if " -m trainer merge " in line]
    assert f"{other.name}/checkpoints/step-00000024 --weights 0.75,0.25 --output" in merging
    assert "--compare" in commands[-1] and commands[-1].endswith(f"both/mean/checkpoints/{found.path.name}")
    assert steps.keys() == {None, through} and steps[None] == 32 and steps[through] == 24
    shutil.rmtree(other)
    assert read_by_mean() == {None: 32, through: None}  # only its run could tell
    assert found.run in [run.directory for run in holding(store, partial(among, documents)).runs]
    assert found.run not in [item.paths[0] for item in gc.find(store, Limits(runs=1))]
    with pytest.raises(PipelineError, match=f"merge {' '.join(named)}"):
        write(store, found, out=tmp_path / "again", relative_to=tmp_path)


@pytest.mark.slow
def test_what_cannot_be_merged_by_hand_is_one_sentence(
    averaged: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    averaged.enter(monkeypatch)
    _, parents = mean_and_parents(averaged)
    run = parents[0].parents[1].name[:8]

    def refused(*arguments: str) -> str:
        capsys.readouterr()
        assert main(["merge", *arguments]) == 2
        told = capsys.readouterr().err.strip().splitlines()[-1]
        assert told.startswith("error: ")
        return told

    assert "has 3 checkpoints on disk" in refused(run, "--last", "9")
    assert "is not on disk" in refused(f"{run}-00000001", f"{run}-00000032")
    assert "named twice" in refused(f"{run}-00000032", run)
    assert "--last is of one run" in refused(run, run, "--last", "2")
    assert "at least two" in refused(run)
    assert "give one for each" in refused(f"{run}-00000028", run, "--weights", "1")
    assert "separated by commas" in refused(f"{run}-00000028", run, "--weights", "a")
    assert "separated by commas" in refused(f"{run}-00000028", run, "--weights", "nan,1")


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The model of the recipe and that of its section are means of their last checkpoints."""
    project = make_chat_project(tmp_path_factory.mktemp("tuned"))
    project.recipe["training"]["averaging"] = {"checkpoints": 3, "every_tokens": 2048}
    section = project.recipe["post_training"]["sft"]["training"]
    section["averaging"] = {"checkpoints": 2, "every_tokens": 2048}
    for job in ("pretrain", "sft"):
        project.make(job=job)
    return project


@pytest.mark.slow
def test_a_section_goes_on_from_a_mean_and_ends_in_one(tuned: Project) -> None:
    store = tuned.variant_store("sft")
    mean = checkpoint(store, str(plan.result(store, store.current(keys.PRETRAINED_MODEL))["checkpoint"]))
    parents = [checkpoint(store, merged["checkpoint"]).path for merged in mean.merged]
    assert len(parents) == 2 and is_mean_of(mean.path, parents)
    assert mean.base is not None and len(mean.base.merged) == 3
    exported = store.current(keys.EXPORTED_MODEL).path
    assert (exported / "model.safetensors").read_bytes() == (mean.path / WEIGHTS).read_bytes()


@pytest.mark.slow
def test_a_mean_is_pushed_and_exported_as_gguf(
    tuned: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tuned.enter(monkeypatch)
    store = tuned.variant_store("sft")
    mean = plan.result(store, store.current(keys.PRETRAINED_MODEL))["checkpoint"]
    with serving(UploadHub("token")) as hub:
        monkeypatch.setenv("HF_TOKEN", "token")
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        assert main(["push", "me/tiny", "--variant", "sft"]) == 0
    pushed = hub.files["me/tiny"]
    assert pushed["model.safetensors"] == (mean / WEIGHTS).read_bytes()
    assert b"the mean of 2 checkpoints" in pushed["README.md"] and b'"merged"' in pushed["lineage.json"]
    gguf = pytest.importorskip("gguf", reason="the extra gguf is not installed")
    named = ["--model", checkpoint_name(mean), "-o", str(tmp_path / "out")]
    assert main(["export", "--format", "gguf", *named]) == 0
    (norm,) = [
        tensor
        for tensor in gguf.GGUFReader(tmp_path / "out" / "tiny.gguf").tensors
        if tensor.name == "output_norm.weight"
    ]
    assert torch.equal(torch.tensor(norm.data), load_file(mean / WEIGHTS)["model.norm.weight"])
