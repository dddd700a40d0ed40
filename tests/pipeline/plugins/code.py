"""Modules of a user, written below a directory that Python imports from."""

import sys
import textwrap
from pathlib import Path

import pyarrow as pa

from pipeline.store.params import DOCUMENT_SCHEMA


def write(directory: Path, module: str, source: str) -> Path:
    """Writes a module, and forgets the one of this name that an earlier test imported."""
    for name in [name for name in sys.modules if name.partition(".")[0] == module.partition(".")[0]]:
        del sys.modules[name]
    path = directory / (module.replace(".", "/") + ".py")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(source).lstrip("\n"), encoding="utf-8")
    return path


def batch(*texts: str, metadata: str | None = None) -> pa.RecordBatch:
    """Documents called d0, d1, ..."""
    rows = [
        {"id": f"d{number}", "text": text, "source": "test", "metadata": metadata}
        for number, text in enumerate(texts)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=DOCUMENT_SCHEMA)
