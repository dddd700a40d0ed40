"""Plots as the UI shows them."""

import base64
from pathlib import Path

import dagster as dg

from pipeline.store.manifest import Version, breakdown
from trainer.system import figures

BARS = "breakdown-1"
SHOWN = 20


def inline_png(path: Path, title: str) -> dg.MarkdownMetadataValue:
    """A small PNG inside the event itself, so that it stays with the run even if the file is deleted."""
    return inline(encoded(path), title)


def encoded(path: Path) -> str:
    """The PNG file in base64, for a report."""
    return as_text(path.read_bytes())


def as_text(png: bytes) -> str:
    return base64.b64encode(png).decode()


def inline(png: str, title: str) -> dg.MarkdownMetadataValue:
    """As `inline_png`, for a PNG in base64."""
    return dg.MetadataValue.md(f"![{title}](data:image/png;base64,{png})")


def bars(version: Version, prefix: str, title: str) -> str | None:
    """The counts named `prefix/...`, most frequent first, as a PNG in base64; None without counts.

    Drawn once for each version.
    """
    counts = {name: count for name, count in breakdown(version.counts, prefix).items() if count}
    if not counts:
        return None
    png: str = version.report(f"{prefix}_bars", [BARS, title], lambda: _bars(counts, title))
    return png


def _bars(counts: dict[str, int], title: str) -> str:
    rows = list(counts.items())[:SHOWN]
    drawing = figures.figure(8, 0.9 + 0.3 * len(rows))
    axes = drawing.add_subplot()
    drawn = axes.barh([name for name, _ in rows], [count for _, count in rows], color=figures.COLOURS[0])
    axes.bar_label(drawn, labels=[f" {count:,}" for _, count in rows])
    axes.invert_yaxis()
    axes.set(title=title, xlim=(0, 1.15 * rows[0][1]))
    return as_text(figures.png(drawing))
