"""Plots as the UI shows them."""

import base64
from pathlib import Path

import dagster as dg


def inline_png(path: Path, title: str) -> dg.MarkdownMetadataValue:
    """A small PNG inside the event itself, so that it stays with the run whatever happens to the file."""
    return inline(encoded(path), title)


def encoded(path: Path) -> str:
    """A PNG as text, for a report."""
    return as_text(path.read_bytes())


def as_text(png: bytes) -> str:
    return base64.b64encode(png).decode()


def inline(png: str, title: str) -> dg.MarkdownMetadataValue:
    """As `inline_png`, of what `encoded` gave."""
    return dg.MetadataValue.md(f"![{title}](data:image/png;base64,{png})")
