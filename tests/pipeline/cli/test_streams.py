"""Where what is printed cannot be written, a command says so, and its status is not 0."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.integration.project import ROOT

COMMAND = [sys.executable, "-m", "pipeline", "recipe", "--explain", "raw"]


HELP = [[sys.executable, "-m", "pipeline", "--help"], [sys.executable, "-m", "trainer", "plan", "--help"]]


def ended(redirected: str, command: Sequence[str] = COMMAND) -> "subprocess.CompletedProcess[str]":
    """A command as a shell runs it."""
    shell = ["bash", "-c", f'"$@" {redirected}', "bash", *command]
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(shell, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("redirected", "why"), [("> /dev/full", "No space left on device"), (">&-", "Bad file descriptor")]
)
def test_what_is_lost_is_told_in_a_sentence(redirected: str, why: str) -> None:
    found = ended(redirected)
    assert found.returncode == 2
    assert found.stderr.splitlines()[-1] == f"error: what is printed cannot be written: {why}"
    assert "Traceback" not in found.stderr


def test_a_reader_that_has_enough_is_told_from_one_that_has_all() -> None:
    found = ended("| true; exit ${PIPESTATUS[0]}")
    assert (found.returncode, found.stdout) == (128 + signal.SIGPIPE, "") and "Traceback" not in found.stderr


def test_without_standard_error_the_result_is_the_same() -> None:
    found = ended("2>&-")
    assert (found.returncode, found.stdout) == (0, ended("").stdout)


@pytest.mark.parametrize("unbuffered", ["", "env PYTHONUNBUFFERED=1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("command", HELP, ids=["pipeline", "trainer"])
def test_help_that_is_lost_is_not_a_success(command: list[str], unbuffered: str) -> None:
    """argparse itself ignores that its help cannot be written."""
    found = ended("> /dev/full", [*unbuffered.split(), *command])
    assert found.returncode == 2 and "No space left on device" in found.stderr
    assert "Exception ignored" not in found.stderr
    assert "usage: python -m" in ended("", command).stdout
