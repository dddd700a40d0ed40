"""The commands that `reproduce` prints make the same checkpoint again."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline.steps.training import plan
from pipeline.store import keys
from pipeline.store.training_runs import checkpoint_name, run_histories
from tests.integration.project import OURS, ROOT, Project, make_project


def trained(tmp_path: Path, **training: Any) -> Project:
    """A project that a clone of the committed code, in `tmp_path / "first"`, has trained."""
    first = tmp_path / "first"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(first)], check=True)
    project = make_project(tmp_path / "project")
    project.recipe["training"] |= training
    environment = project.environment() | {"DAGSTER_CLI_JOB_EXECUTE_WORKING_DIRECTORY": str(first)}
    command = [str(Path(sys.executable).with_name("dagster")), "job", "execute", "-j", "pretrain"]
    subprocess.run(command, cwd=first, env=environment, check=True, timeout=600)
    return project


def commands(project: Project, checkpoint: str, tmp_path: Path) -> list[str]:
    """What `reproduce` prints, for the directory `tmp_path / "again"`."""
    asked = ["reproduce", checkpoint, "-o", str(tmp_path / "again")]
    return subprocess.run(
        [sys.executable, "-m", "pipeline", *asked],
        cwd=tmp_path / "first",
        env=project.environment(),
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()


def follow(printed: list[str], code: Path, project: Project, tmp_path: Path) -> str:
    """Follows the commands in a second clone of the code. What they print."""
    (setup,) = [line for line in printed if line.startswith("make ")]
    assert not any("uncommitted" in line for line in printed)
    # The environment is the one that this test runs in, instead of the same one installed anew.
    link = f"ln -s {Path(sys.executable).parents[1]} {code / '.venv'}"
    script = [link if line == setup else line for line in printed]
    bare = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    bare["GROUNDWORK_STORE"] = str(project.store.root)  # as exported by who keeps the store elsewhere
    shutil.rmtree(project.home / "history")  # nothing of the first run is used
    followed = ["bash", "-euc", "\n".join(script)]
    return subprocess.run(
        followed, env=bare, cwd=tmp_path, check=True, timeout=900, stdout=subprocess.PIPE, text=True
    ).stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("same", "its source is unchanged"),
        ("changed", "its source has changed since; the earlier documents are read from "),
        ("gone", "; the earlier documents are read from "),
    ],
)
def test_the_printed_commands_make_the_same_checkpoint(tmp_path: Path, source: str, told: str) -> None:
    """The source of the corpus may have changed in between, or be gone."""
    project = trained(tmp_path)
    (run,) = (project.store.root / "runs").iterdir()
    corpus = project.directory / "topics.jsonl"
    if source == "changed":
        corpus.write_bytes(corpus.read_bytes().partition(b"\n")[2])
    elif source == "gone":
        corpus.unlink()
    printed = commands(project, f"{run.name[:8]}-00000024", tmp_path)
    (note,) = [line for line in printed if line.startswith("# corpus topics: ")]
    assert told in note
    said = follow(printed, tmp_path / "again" / "code", project, tmp_path)
    assert said.splitlines()[-1] == "the same bytes: hf/model.safetensors, optimizer.safetensors"
    made = tmp_path / "again" / "home" / "store" / "runs" / run.name / "checkpoints" / "step-00000024"
    for name in ("hf/model.safetensors", "optimizer.safetensors"):
        assert (made / name).read_bytes() == (run / "checkpoints" / "step-00000024" / name).read_bytes()


@pytest.mark.slow
def test_the_printed_commands_make_the_same_mean(tmp_path: Path) -> None:
    project = trained(tmp_path, averaging={"checkpoints": 3, "every_tokens": 2048})
    mean = plan.result(project.store, project.store.current(keys.PRETRAINED_MODEL))["checkpoint"]
    (run,) = [one for one in run_histories(project.store) if one.path != mean.parents[1]]
    printed = commands(project, checkpoint_name(mean), tmp_path)
    said = follow(printed, tmp_path / "again" / run.path.name / "code", project, tmp_path)
    assert said.splitlines()[-1] == "the same bytes: hf/model.safetensors"
    made = tmp_path / "again" / "mean" / "checkpoints" / mean.name / "hf/model.safetensors"
    assert made.read_bytes() == (mean / "hf/model.safetensors").read_bytes()
