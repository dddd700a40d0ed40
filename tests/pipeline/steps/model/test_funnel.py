"""The picture of what is left of each corpus after each stage."""

from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from pipeline.steps.model import funnel
from trainer.system import figures


@pytest.mark.parametrize("corpora", [1, 3, 9])
def test_the_legend_covers_no_number_of_a_bar(corpora: int, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(figures, "png", lambda drawing: drawn.append(drawing) or b"")
    # nothing is lost, so that the last bar is as long as the first
    stages = dict.fromkeys(funnel.DOCUMENTS + funnel.BYTES + funnel.TOKENS, 123_456)
    funnel.draw({f"corpus_{number}": stages for number in range(corpora)})
    (drawing,) = drawn
    FigureCanvasAgg(drawing).draw()
    legends = [*drawing.legends, *filter(None, (axes.get_legend() for axes in drawing.axes))]
    (legend,) = [one.get_window_extent() for one in legends]
    numbers = [text.get_window_extent() for axes in drawing.axes for text in axes.texts]
    assert len(numbers) == 6 and not any(map(legend.overlaps, numbers))
    assert drawing.bbox.contains(legend.x0, legend.y0) and drawing.bbox.contains(legend.x1, legend.y1)
