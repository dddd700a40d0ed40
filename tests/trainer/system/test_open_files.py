"""Too few open files are told in one sentence before anything begins, and a low soft limit is raised."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

COMMANDS = {
    "pipeline": [sys.executable, "-m", "pipeline", "dedup", "*.jsonl", "-o", "out"],
    "trainer": [sys.executable, "-m", "trainer", "config.yaml"],
    "dagster": [
        str(Path(sys.executable).with_name("dagster")),
        *("job", "execute", "-m", "pipeline.definitions", "-j", "corpus"),
    ],
}


def ended(command: list[str], tmp_path: Path, limits: tuple[int, int]) -> "subprocess.CompletedProcess[str]":
    variables = {**os.environ, "DAGSTER_HOME": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[3])}

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    return subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=variables, preexec_fn=limit, check=False
    )


@pytest.mark.parametrize("program", COMMANDS)
def test_a_hard_limit_that_is_too_low_is_told_in_one_sentence(tmp_path: Path, program: str) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "some words"}\n')
    done = ended(COMMANDS[program], tmp_path, (200, 200))
    assert done.returncode in (1, 2)
    told = [line for line in done.stderr.splitlines() if "files" in line]
    assert len(told) == 1 and "a process may open 200 files here, and 512 are needed: raise the" in told[0]
    assert "Traceback" not in done.stderr and not (tmp_path / "out").exists()


def test_processes_that_are_started_inherit_the_raised_limit(tmp_path: Path) -> None:
    code = (
        "import os; from trainer.system import open_files; open_files.allow_enough(); os.system('ulimit -n')"
    )
    assert ended([sys.executable, "-c", code], tmp_path, (64, 1000)).stdout == "1000\n"
