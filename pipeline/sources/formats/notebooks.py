"""Notebooks (`.ipynb`) as Markdown: text, and code between fences, without what the code printed and drew."""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from pipeline.sources.documents import MAX_DOCUMENT_BYTES
from pipeline.sources.formats.rows import RowReader
from pipeline.sources.formats.text_files import read_found, whole
from pipeline.sources.source import Reason


def read_notebook(
    content: Iterator[bytes], reader: RowReader, piece_bytes: int | None
) -> Iterator[pa.RecordBatch]:
    """The cells of a notebook, as `read_found` gives them. Raises what `content` raises."""
    for file in whole(content, reader, MAX_DOCUMENT_BYTES, f"more than {MAX_DOCUMENT_BYTES} bytes"):
        try:
            text = "\n\n".join(filter(None, cells(json.loads(file))))
        except (ValueError, RecursionError, AttributeError, TypeError, KeyError) as error:
            reader.reject(None, Reason.INVALID_JSON, f"the file is not a notebook: {error!r}", reader.bytes)
        else:
            yield from read_found(text.encode("utf-8", "replace").decode(), reader, piece_bytes)


def cells(notebook: dict[str, Any]) -> Iterator[str]:
    """The text of each cell, of any version of the format. Raises an error of types for what is none."""
    facts = notebook.get("metadata", {})
    language = facts.get("language_info", facts.get("kernelspec", {}))
    sheets = notebook.get("worksheets", [notebook])  # before version 4
    for cell in (cell for sheet in sheets for cell in sheet["cells"]):
        written = cell["source"] if "source" in cell else cell["input"]
        text = (written if isinstance(written, str) else "".join(written)).strip("\n")
        if cell["cell_type"] == "code" and text.strip():
            name = cell.get("language") or language.get("language") or language.get("name", "")
            text = f"```{name}\n{text}\n```"
        elif cell["cell_type"] == "heading":
            text = f"{'#' * cell['level']} {text}"
        yield text
