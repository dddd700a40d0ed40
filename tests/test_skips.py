"""`make test-all` fails where a test is skipped for want of a package: no other command would run it."""

import re
import subprocess
import sys
from pathlib import Path

TESTS = """
import pytest

def test_without_a_package():
    pytest.importorskip("no_such_package")

def test_without_a_gpu():
    pytest.skip("no CUDA GPU")

@pytest.mark.skip(reason="switched off")
def test_switched_off():
    pass

@pytest.mark.xfail
def test_known_to_fail():
    assert False
"""


def outcomes(directory: Path, *options: str) -> dict[str, int]:
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options], cwd=directory, capture_output=True, text=True, check=False
    )
    return {word.rstrip("s"): int(n) for n, word in re.findall(r"(\d+) (\w+)", run.stdout.splitlines()[-1])}


def test_a_skip_that_no_command_runs_fails_make_test_all(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((Path(__file__).parent / "conftest.py").read_text())
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "test_file.py").write_text('import pytest\npytest.importorskip("no_such_package")\n')
    assert outcomes(tmp_path)["skipped"] == 4
    found = outcomes(tmp_path, "--no-skips", "--continue-on-collection-errors")
    assert (found["failed"] + found["error"], found["skipped"], found["xfailed"]) == (3, 1, 1)
