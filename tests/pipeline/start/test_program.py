"""The program `groundwork`, as it is typed."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def groundwork(*arguments: str) -> "subprocess.CompletedProcess[str]":
    code = "import sys; sys.argv[0] = 'groundwork'; from pipeline.__main__ import groundwork; groundwork()"
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=120)


def test_a_folder_is_started_and_what_is_no_folder_is_said_in_one_sentence(tmp_path: Path) -> None:
    done = groundwork(str(tmp_path / "nowhere"), "--hours", "1")
    assert done.returncode == 2
    assert "nowhere: is no folder: name one that holds text" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_command_and_the_trainers_are_run() -> None:
    done = groundwork("recipe", "--explain", "dedup")
    assert done.returncode == 0 and "threshold" in done.stdout
    done = groundwork("trainer", "plan", "--help")
    assert done.returncode == 0 and "--mfu" in done.stdout
