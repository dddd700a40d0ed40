"""Where what is printed cannot be written, a command says so, and its status is not 0."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.integration.project import ROOT

COMMAND = [sys.executable, "-m", "pipeline", "recipe", "--explain", "raw"]


HELP = {
    "pipeline": ["pipeline", "--help"],
    "trainer": ["trainer", "--help"],
    "trainer plan": ["trainer", "plan", "--help"],
}
UNBUFFERED = pytest.mark.parametrize(
    "unbuffered", ["", "env PYTHONUNBUFFERED=1"], ids=["buffered", "unbuffered"]
)


def ended(redirected: str, command: Sequence[str] = COMMAND) -> "subprocess.CompletedProcess[str]":
    """A command as a shell runs it."""
    shell = ["bash", "-c", f'"$@" {redirected}', "bash", *command]
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(shell, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)


@UNBUFFERED
@pytest.mark.parametrize(
    "command",
    [COMMAND, [*COMMAND[:3], "recipe"], [*COMMAND[:2], "trainer", "several"]],
    ids=["short", "longer than a buffer", "trainer"],
)
@pytest.mark.parametrize(
    ("redirected", "why"), [("> /dev/full", "No space left on device"), (">&-", "Bad file descriptor")]
)
def test_what_is_lost_is_told_in_a_sentence(
    redirected: str, why: str, command: list[str], unbuffered: str
) -> None:
    found = ended(f"""<<< '["nowhere.yaml"]' {redirected}""", [*unbuffered.split(), *command])
    assert found.returncode == 2
    assert re.search(f"^(error|trainer): what is printed cannot be written: {why}$", found.stderr, re.M)
    assert "Exception ignored" not in found.stderr
    assert "Traceback" not in found.stderr


def test_a_reader_that_has_enough_is_told_from_one_that_has_all() -> None:
    found = ended("| true; exit ${PIPESTATUS[0]}")
    assert (found.returncode, found.stdout) == (128 + signal.SIGPIPE, "") and "Traceback" not in found.stderr


def test_without_standard_error_the_result_is_the_same() -> None:
    found = ended("2>&-")
    assert (found.returncode, found.stdout) == (0, ended("").stdout)


@UNBUFFERED
@pytest.mark.parametrize("asked", HELP.values(), ids=HELP)
def test_help_that_is_lost_is_not_a_success(asked: list[str], unbuffered: str) -> None:
    """argparse itself ignores that its help cannot be written."""
    command = [sys.executable, "-m", *asked]
    found = ended("> /dev/full", [*unbuffered.split(), *command])
    assert found.returncode == 2 and "cannot be written: No space left on device" in found.stderr
    assert "Exception ignored" not in found.stderr
    assert "usage: python -m" in ended("", command).stdout
