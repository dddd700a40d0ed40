"""A disk that is full ends a command that writes files in one sentence that names where they should go."""

import json
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trainer.__main__ import main

pytestmark = pytest.mark.usefixtures("trainer_environment")


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file may grow beyond so many bytes. Python 3.11 would leave half a .pyc, which ends later tests."""
    _, hard = before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = writes
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [0, 100, 700, 30_000])
@pytest.mark.parametrize("command", ["merge", "benchmark"])
def test_files_that_do_not_fit_are_told_by_the_place_that_was_named(
    command: str, size: int, finished_once: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    items = tmp_path / "items.jsonl"
    item = json.dumps({"context": "the", "continuations": [" a", " token"], "gold": 0}) + "\n"
    items.write_text(item * (1 + size // 30))
    named = {
        "merge": [str(finished_once), "--last=2"],
        "benchmark": ["--model", str(finished_once), str(items)],
    }
    with room_for(size):
        status = main([command, *named[command], "--output", str(out)])
    told = capsys.readouterr().err.strip().splitlines()[-1]
    assert status == 2
    assert told.startswith(f"trainer: {out}: cannot be written (")
    # `python -m pipeline merge` passes this on, and names no directory that could be another one.
    assert told.endswith("): free some space on its disk, or use another disk, and run again")
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path != items]
