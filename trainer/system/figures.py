"""The look of every figure, in the UI, in a model card and in a run directory."""

import io
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Hues that are easy to tell apart, in the order of use.
COLORS = ("#2171b5", "#d94801", "#238b45", "#6a51a3", "#cb181d", "#525252")


def colors(names: Iterable[str]) -> dict[str, str]:
    """A color for each name: the same in every figure with the same names."""
    return {name: COLORS[place % len(COLORS)] for place, name in enumerate(sorted(names))}


def figure(width: float, height: float) -> "Figure":
    """An empty figure of `width` x `height` inches, which needs no display."""
    # Imported late: it takes half a second, and only drawing needs it.
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=110, layout="constrained")


def png(drawing: "Figure") -> bytes:
    """The bytes of a PNG file. Axes have no frame at the top and on the right, unless they show an image."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    for axes in (axes for axes in drawing.axes if not axes.images):
        axes.spines[["top", "right"]].set_visible(False)
    buffer = io.BytesIO()
    FigureCanvasAgg(drawing).print_png(buffer)  # `savefig` draws everything once more
    return buffer.getvalue()
