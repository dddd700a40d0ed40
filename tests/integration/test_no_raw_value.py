"""A run on documents full of personal data leaves none outside `raw`: everything on disk is searched."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

from tests.integration.project import ROOT, make_project, python_topics
from tests.pipeline.stages.pii.test_lists import LISTS
from tests.rows import jsonl

pytestmark = pytest.mark.slow


def documents() -> Iterator[dict[str, object]]:
    """Chapters of Python's reference, each with a value of every kind in its text, metadata and URL."""
    kinds = {name: values for name, values in LISTS.items() if name != "German phone"}
    for number, chapter in enumerate(python_topics()[:40]):
        values = {name: values[number] for name, values in kinds.items()}
        yield {
            "id": chapter["id"],
            "text": f"{chapter['text']}\n{','.join(values.values())}\n",
            "url": f"https://me:s3cret{number}@{values['IPv4']}/?by={values['email']}",
            "author": values["email"],
            "people": [values],
            "account": int(values["card"]),
        }


def contents(file: Path) -> bytes:
    """The bytes of a file, and of a Parquet file its text."""
    if file.suffix != ".parquet":
        return file.read_bytes()
    columns = pq.read_table(file).columns
    texts = [
        column
        for column in columns
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    ]
    return "\n".join(str(value) for column in texts for value in column.to_pylist()).encode()


def test_no_raw_value_is_in_store_database_logs_or_exports_after_a_run(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project")
    rows = list(documents())
    jsonl(project.directory / "topics.jsonl", *rows)
    said = project.make()
    for command in (
        ["export", "--format", "parquet", "-o", str(tmp_path / "corpora")],
        ["export", "--format", "megatron", "-o", str(tmp_path / "megatron")],
        ["scrub", str(project.directory / "topics.jsonl"), "-o", str(tmp_path / "files")],
    ):
        line = [sys.executable, "-m", "pipeline", *command]
        done = subprocess.run(
            line, env=project.environment(), cwd=ROOT, capture_output=True, text=True, check=True
        )
        said += done.stdout + done.stderr
    values = {value for row in rows for value in row["people"][0].values()}  # type: ignore[index]
    values |= {f"me:s3cret{number}" for number in range(len(rows))}
    searched = {"what was said": said.encode()}
    for folder in (project.home, tmp_path / "corpora", tmp_path / "megatron", tmp_path / "files"):
        for file in folder.rglob("*"):
            if file.is_file() and "raw" not in file.relative_to(folder).parts:
                searched[str(file)] = contents(file)
    tokenizer = Tokenizer.from_file(str(next((project.home / "store" / "tokenizer").rglob("tokenizer.json"))))
    for name in [name for name in searched if name.endswith(".bin") and "token_shards" in name]:
        searched[f"text of {name}"] = tokenizer.decode(np.fromfile(name, np.uint16).tolist()).encode()
    found = {
        name: [value for value in values if value.encode() in content] for name, content in searched.items()
    }
    assert {name: values for name, values in found.items() if values} == {}
    assert any(
        b"[CREDIT_CARD]" in content for name, content in searched.items() if name.startswith("text of")
    )
    assert sum(name.endswith(".parquet") for name in searched) > 5
