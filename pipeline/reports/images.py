"""Plots as the UI shows them."""

import base64
from pathlib import Path

import dagster as dg


def inline_png(path: Path, title: str) -> dg.MarkdownMetadataValue:
    """A small PNG inside the event itself, so that it stays with the run even if the file is deleted."""
    return inline(as_text(path.read_bytes()), title)


def as_text(png: bytes) -> str:
    """A PNG in base64, for a report."""
    return base64.b64encode(png).decode()


def inline(png: str, title: str) -> dg.MarkdownMetadataValue:
    """As `inline_png`, for a PNG in base64."""
    return dg.MetadataValue.md(f"![{title}](data:image/png;base64,{png})")
