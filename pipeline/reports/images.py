"""Plots as the UI shows them."""

import base64
import math
from collections.abc import Sequence
from pathlib import Path

import dagster as dg

POINTS, HEIGHT = 58, 66  # of a sparkline: places, and pixels
HUGE = 1e9  # a loss that has exploded


def inline_png(path: Path, title: str) -> dg.MarkdownMetadataValue:
    """A small PNG inside the event itself, so that it stays with the run even if the file is deleted."""
    return inline(as_text(path.read_bytes()), title)


def sparkline(values: Sequence[float], title: str) -> dg.MarkdownMetadataValue:
    """A curve without axes, with its last value. The UI shows it without a click, as it does
    markdown of less than 1,000 characters.
    """
    known = [min(max(value, -HUGE), HUGE) for value in values if math.isfinite(value)] or [0.0]
    shown = [*known[:: math.ceil(len(known) / POINTS)], known[-1]]
    low, high = min(shown), max(shown)
    heights = [HEIGHT - 2 - round((HEIGHT - 4) * (value - low) / (high - low or 1)) for value in shown]
    points = " ".join(f"{4 * place},{height}" for place, height in enumerate(heights))
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="300" height="{HEIGHT}">'
        f'<polyline fill="none" stroke="#17b" points="{points}"/>'
        f'<text x="{4 * len(shown) + 4}" y="{heights[-1]}" font-size="12">{known[-1]:.3f}</text></svg>'
    )
    return dg.MetadataValue.md(f"![{title}](data:image/svg+xml;base64,{as_text(svg.encode())})")


def as_text(png: bytes) -> str:
    """A PNG in base64, for a report."""
    return base64.b64encode(png).decode()


def inline(png: str, title: str) -> dg.MarkdownMetadataValue:
    """As `inline_png`, for a PNG in base64."""
    return dg.MetadataValue.md(f"![{title}](data:image/png;base64,{png})")
