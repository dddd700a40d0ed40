"""Rows in a file, one a line in JSON."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def jsonl(path: Path, *rows: Mapping[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
