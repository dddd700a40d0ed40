"""Dagster's own records cannot be written."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sqlite3, sys
from pipeline.assets.operations.console import explain_on_exit
from sqlalchemy import create_engine, text
explain_on_exit()
engine = create_engine("sqlite:///" + sys.argv[1])
with engine.begin() as connection:
    for statement in sys.argv[2:]:
        connection.execute(text(statement))
"""
FILL = "insert into a select zeroblob(10000000)"


@pytest.mark.parametrize(
    ("statements", "why"),
    [
        (["pragma max_page_count = 2", FILL], "(database or disk is full): free some space there"),
        (["pragma query_only = on", FILL], "(attempt to write a readonly database)"),
    ],
)
def test_a_home_that_takes_no_records_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statements: list[str], why: str
) -> None:
    """The pages that SQLite may use stand for a full disk, which it reports in the same words."""
    file = tmp_path / "runs.db"
    with sqlite3.connect(file) as connection:
        connection.execute("create table a (b blob)")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, str(file)]
    said = subprocess.run([*command, *statements], capture_output=True, text=True, check=False)
    assert said.returncode == 1 and len(said.stderr.splitlines()) == 1, said.stderr
    assert said.stderr.startswith(f"error: Dagster's records in DAGSTER_HOME {tmp_path} cannot be written")
    assert why in said.stderr
    mistake = subprocess.run([*command, "select c from a"], capture_output=True, text=True, check=False)
    assert "Traceback" in mistake.stderr  # a fault of the program
