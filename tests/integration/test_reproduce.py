"""The commands that `reproduce` prints make the same checkpoint again."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.project import ROOT, Project, make_project


def run_directory(project: Project) -> Path:
    (run,) = (project.store.root / "runs").iterdir()
    return run


@pytest.mark.slow
@pytest.mark.parametrize("changed", [False, True], ids=["same corpus", "changed corpus"])
def test_the_printed_commands_make_the_same_checkpoint(tmp_path: Path, changed: bool) -> None:
    """Two clones of the committed code: the first trains, the commands that it prints are followed in the
    other. The source of the corpus may have changed in between.
    """
    first = tmp_path / "first"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(first)], check=True)
    project = make_project(tmp_path / "project")
    environment = project.environment() | {"DAGSTER_CLI_JOB_EXECUTE_WORKING_DIRECTORY": str(first)}
    trained = [str(Path(sys.executable).with_name("dagster")), "job", "execute", "-j", "pretrain"]
    subprocess.run(trained, cwd=first, env=environment, check=True, timeout=600)
    run = run_directory(project)
    if changed:
        corpus = project.directory / "topics.jsonl"
        corpus.write_bytes(corpus.read_bytes().partition(b"\n")[2])
    again = [
        sys.executable,
        "-m",
        "pipeline",
        "reproduce",
        f"{run.name[:8]}-00000024",
        "-o",
        str(tmp_path / "again"),
    ]
    printed = subprocess.run(
        again, cwd=first, env=environment, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    (setup,) = [line for line in printed if line.startswith("make ")]
    assert not any("uncommitted" in line for line in printed)
    assert any("has changed since" in line for line in printed) == changed
    # The environment is the one that this test runs in, instead of the same one installed anew.
    script = [
        f"ln -s {Path(sys.executable).parents[1]} {tmp_path / 'again' / 'code' / '.venv'}"
        if line == setup
        else line
        for line in printed
    ]
    bare = {
        name: value for name, value in os.environ.items() if not name.startswith(("DAGSTER", "GROUNDWORK"))
    }
    bare["GROUNDWORK_STORE"] = str(project.store.root)  # as exported by who keeps the store elsewhere
    shutil.rmtree(project.home / "history")  # nothing of the first run is used
    subprocess.run(["bash", "-euc", "\n".join(script)], env=bare, cwd=tmp_path, check=True, timeout=900)
    made = tmp_path / "again" / "home" / "store" / "runs" / run.name / "checkpoints" / "step-00000024"
    for name in ("hf/model.safetensors", "optimizer.safetensors"):
        assert (made / name).read_bytes() == (run / "checkpoints" / "step-00000024" / name).read_bytes()
