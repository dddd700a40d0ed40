"""Pictures in the UI."""

import base64
import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.reports.images import sparkline

SVG = "{http://www.w3.org/2000/svg}"


@given(st.lists(st.floats(), max_size=2000))
def test_a_sparkline_of_any_losses_is_short_enough_to_be_shown_at_once(losses: list[float]) -> None:
    shown = sparkline(losses, "loss").value
    assert shown and len(shown) < 1000
    match = re.fullmatch(r"!\[loss\]\(data:image/svg\+xml;base64,(.*)\)", shown)
    assert match
    svg = ElementTree.fromstring(base64.b64decode(match[1]))
    line = svg.find(f"{SVG}polyline")
    assert line is not None
    points = [tuple(map(int, one.split(","))) for one in line.attrib["points"].split()]
    assert all(0 <= x <= 300 and 0 <= y <= int(svg.attrib["height"]) for x, y in points)


@pytest.mark.parametrize("losses", [[5.0, 4.0, 3.0], [5.0, math.nan, 3.0]])
def test_a_falling_loss_falls_and_names_its_last_value(losses: list[float]) -> None:
    svg = base64.b64decode((sparkline(losses, "loss").value or "").partition("base64,")[2][:-1]).decode()
    heights = [int(one.partition(",")[2]) for one in svg.partition('points="')[2].partition('"')[0].split()]
    assert heights == sorted(heights) and heights[0] < heights[-1] and ">3.000<" in svg
