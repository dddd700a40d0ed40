"""Plots as the UI shows them."""

import base64
from pathlib import Path

import dagster as dg


def inline_png(path: Path, title: str) -> dg.MarkdownMetadataValue:
    """A small PNG inside the event itself, so that it stays with the run whatever happens to the file."""
    return dg.MetadataValue.md(f"![{title}](data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()})")
