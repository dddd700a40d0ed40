"""Plots as the UI shows them, in Markdown."""

import base64
import math
from collections.abc import Iterator, Mapping, Sequence

POINTS, HEIGHT = 58, 66  # of a sparkline: places, and pixels
# Of overlaid curves: in one picture, points of each, pixels, and the colors, which must be short.
TOGETHER, SPARSE, WIDE, TALL = 4, 9, 250, 80
SHORT_COLORS = ("#17b", "#d40", "#284", "#64a")
HUGE = 1e9  # a loss that has exploded


def sparkline(losses: Sequence[float]) -> str:
    """A curve with its last value, below 1,000 characters: the UI shows such markdown without a click."""
    known = [min(max(value, -HUGE), HUGE) for value in losses if math.isfinite(value)] or [0.0]
    shown = [*known[:: math.ceil(len(known) / POINTS)], known[-1]]
    low, high = min(shown), max(shown)
    heights = [HEIGHT - 2 - round((HEIGHT - 4) * (value - low) / (high - low or 1)) for value in shown]
    points = " ".join(f"{4 * place},{height}" for place, height in enumerate(heights))
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="300" height="{HEIGHT}">'
        f'<polyline fill="none" stroke="#17b" points="{points}"/>'
        f'<text x="{4 * len(shown) + 4}" y="{heights[-1]}" font-size="12">{known[-1]:.3f}</text></svg>'
    )
    return f"![loss](data:image/svg+xml;base64,{as_text(svg.encode())})"


def overlaid(curves: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> Iterator[str]:
    """Curves over each other, by name: where each has its values, ascending, and the values. As with
    `sparkline`, the UI shows each picture without a click, and so it has few curves and points; all pictures
    have the same axes, from the first value to the last place.
    """
    known = {
        name: [
            (place, min(max(value, -HUGE), HUGE))
            for place, value in zip(*curve, strict=True)
            if math.isfinite(value)
        ]
        for name, curve in curves.items()
    }
    values = [value for points in known.values() for _, value in points]
    low, high = min(values, default=0.0), max(values, default=0.0)
    last = max((points[-1][0] for points in known.values() if points), default=0) or 1
    begun = [name for name in known if known[name]]
    for some in (begun[first : first + TOGETHER] for first in range(0, len(begun), TOGETHER)):
        drawn = []
        for row, name in enumerate(some):
            points = known[name]
            step = max(1, math.ceil((len(points) - 1) / (SPARSE - 1)))
            places = [
                f"{WIDE * place / last:.0f},{TALL - (TALL - 4) * (value - low) / (high - low or 1) - 2:.0f}"
                for place, value in [*points[:-1:step], points[-1]]
            ]
            color = SHORT_COLORS[row]
            drawn.append(f'<path fill="none" stroke="{color}" d="M{" ".join(places)}"/>')
            drawn.append(f'<text x="{WIDE + 5}" y="{18 * row + 15}" fill="{color}">{name}</text>')
        svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="330" height="{TALL}">{"".join(drawn)}</svg>'
        yield f"![loss by tokens](data:image/svg+xml;base64,{as_text(svg.encode())})"


def as_text(png: bytes) -> str:
    """A PNG in base64, for a report."""
    return base64.b64encode(png).decode()


def inline(png: str, title: str) -> str:
    """A small PNG in base64 inside the event itself, so that it stays with the run whatever is deleted."""
    return f"![{title}](data:image/png;base64,{png})"
