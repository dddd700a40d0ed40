"""A file or a directory is complete under its name, or as it was."""

import subprocess
import sys
from pathlib import Path

import pytest

from trainer.system.durable import (
    atomic_directory,
    atomic_file,
    read_json_lines,
    unpublished,
    write_atomically,
)


def test_a_failed_write_leaves_the_old_text(tmp_path: Path) -> None:
    path = tmp_path / "new" / "state.json"
    write_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "new \ud800")
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]
    write_atomically(path, b"new")
    assert path.read_text() == "new"


def test_who_reads_while_a_file_is_written_reads_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    write_atomically(path, "old")
    with atomic_file(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_a_directory_is_replaced_as_one_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "step"
    unpublished(path).mkdir()
    (unpublished(path) / "of a killed attempt").touch()
    with atomic_directory(path) as directory:
        (directory / "old").write_text("old")
        assert not path.exists()
    assert [file.name for file in path.iterdir()] == ["old"]
    with pytest.raises(ValueError, match="half"), atomic_directory(path) as directory:
        (directory / "new").touch()
        raise ValueError("half")
    assert [file.name for file in path.iterdir()] == ["old"]
    with atomic_directory(path) as directory:
        (directory / "new").touch()
    assert [file.name for file in path.iterdir()] == ["new"]
    assert list(tmp_path.iterdir()) == [path]


def test_records_end_where_a_kill_cut_a_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert read_json_lines(path) == []
    path.write_text('{"step": 1}\n{"step": 2}\n{"st')
    assert read_json_lines(path) == [{"step": 1}, {"step": 2}]


FULL = """import resource, sys
from pathlib import Path
from trainer.system.durable import write_atomically
resource.setrlimit(resource.RLIMIT_FSIZE, (9, 9))
try:
    write_atomically(Path(sys.argv[1]), "more than nine bytes")
except OSError as error:
    print(error)
"""


def test_a_file_for_which_there_is_no_room_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    done = subprocess.run([sys.executable, "-c", FULL, path], capture_output=True, text=True)
    assert done.stdout == f"[Errno 27] File too large: '{path}'\n"
    assert not list(tmp_path.iterdir())
