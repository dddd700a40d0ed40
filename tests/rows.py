"""Rows: in a file, one a line in JSON; documents in a batch; those of a table in a store."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.store.manifest import Version
from pipeline.store.parquet import read_table


def jsonl(path: Path, *rows: Mapping[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def documents(*texts: str | None, ids: Sequence[str] = ()) -> pa.RecordBatch:
    """Texts with these ids, or else with ascending ones."""
    names = ids or [f"{row:07}" for row in range(len(texts))]
    return pa.record_batch({"id": pa.array(names, pa.string()), "text": pa.array(texts, pa.large_string())})


def stored_rows(version: Version, table: str) -> list[dict[str, Any]]:
    return [row for path in version.files(table) for row in read_table(path).to_pylist()]
