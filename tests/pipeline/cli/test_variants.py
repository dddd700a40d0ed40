"""`variants run` that is told to stop: its jobs save and end, and no other begins."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.integration.project import TRAINING, until

ROOT = Path(__file__).parents[3]
# Notes in a file that it has begun and that it was told to stop, as Dagster is by Ctrl-C.
JOB = """#!/bin/sh
echo begun >> "$NOTES"
trap 'echo saved >> "$NOTES"; exit 1' INT
while :; do sleep 0.05; done
"""
COMMAND = """import sys
sys.executable = sys.argv[1]
from pipeline.__main__ import run
run(["variants", "run"])
"""


def started(tmp_path: Path, job: str) -> subprocess.Popen[str]:
    """`variants run` of a recipe with one variant, whose jobs are the script `job`."""
    source = {"kind": "files", "paths": ["notes.txt"]}
    recipe = {
        "name": "mine",
        "corpora": [{"name": "notes", "source": source}],
        "training": TRAINING,
        "variants": {"strict": {"quality": {"min_words": 60}}},
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    (tmp_path / "python").write_text(job)
    (tmp_path / "python").chmod(0o755)
    named = {"NOTES": str(tmp_path / "notes"), "GROUNDWORK_RECIPE": str(tmp_path / "recipe.yaml")}
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(tmp_path / "python")],
        env=os.environ | named,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # A script starts what it leaves in the background so.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_jobs_in_the_background_save_and_end_with_the_command(tmp_path: Path, number: signal.Signals) -> None:
    process, notes = started(tmp_path, JOB), tmp_path / "notes"
    until(notes.exists, 60, lambda: "no job has begun")
    process.send_signal(number)
    process.wait(20)
    until(lambda: "saved" in notes.read_text(), 20, lambda: "the job was not told to stop")
    assert notes.read_text().split() == ["begun", "saved"]


def test_variants_that_failed_are_named_with_the_command_that_resumes_them(tmp_path: Path) -> None:
    said = started(tmp_path, "#!/bin/sh\nexit 1\n").communicate(timeout=60)[1]
    assert said.splitlines()[-1] == (
        "error: failed: base, strict; the output above says why. To resume: "
        "python -m pipeline variants run base strict --job pretrain"
    )
