"""Notebooks (`.ipynb`) as Markdown: text, and code between fences, without what the code printed and drew."""

import json
from collections.abc import Iterator
from typing import Any

from pipeline.sources.source import Reason, RefusedError


def notebook_text(file: bytes) -> str:
    """The cells of a notebook. Raises RefusedError."""
    try:
        text = "\n\n".join(filter(None, cells(json.loads(file))))
    except (ValueError, RecursionError, AttributeError, TypeError, KeyError) as error:
        raise RefusedError(Reason.INVALID_JSON, f"the file is not a notebook: {error!r}") from error
    return text.encode("utf-8", "replace").decode()


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
