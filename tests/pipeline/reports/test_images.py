"""Pictures in the UI."""

import base64
import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.reports.images import overlaid, sparkline

SVG = "{http://www.w3.org/2000/svg}"


@given(st.lists(st.floats(), max_size=2000))
def test_a_sparkline_of_any_losses_is_short_enough_to_be_shown_at_once(losses: list[float]) -> None:
    shown = sparkline(losses)
    assert len(shown) < 1000
    match = re.fullmatch(r"!\[loss\]\(data:image/svg\+xml;base64,(.*)\)", shown)
    assert match
    svg = ElementTree.fromstring(base64.b64decode(match[1]))
    line = svg.find(f"{SVG}polyline")
    assert line is not None
    points = [tuple(map(int, one.split(","))) for one in line.attrib["points"].split()]
    assert all(0 <= x <= 300 and 0 <= y <= int(svg.attrib["height"]) for x, y in points)


@pytest.mark.parametrize("losses", [[5.0, 4.0, 3.0], [5.0, math.nan, 3.0]])
def test_a_falling_loss_falls_and_names_its_last_value(losses: list[float]) -> None:
    svg = base64.b64decode(sparkline(losses).partition("base64,")[2][:-1]).decode()
    heights = [int(one.partition(",")[2]) for one in svg.partition('points="')[2].partition('"')[0].split()]
    assert heights == sorted(heights) and heights[0] < heights[-1] and ">3.000<" in svg


@given(st.lists(st.lists(st.floats(), min_size=1, max_size=200), max_size=13), st.integers(1, 10**12))
def test_overlaid_curves_are_short_enough_to_be_shown_at_once(losses: list[list[float]], tokens: int) -> None:
    names = [f"{number:08x}" for number in range(len(losses))]
    curves = {
        name: ([tokens * step for step in range(1, len(curve) + 1)], curve)
        for name, curve in zip(names, losses, strict=True)
    }
    shown = list(overlaid(curves))
    assert all(len(one) < 1000 for one in shown)
    drawn = [ElementTree.fromstring(base64.b64decode(one.partition("base64,")[2][:-1])) for one in shown]
    labels = [label.text for svg in drawn for label in svg.iter(f"{SVG}text")]
    assert labels == [
        name for name, curve in zip(names, losses, strict=True) if any(map(math.isfinite, curve))
    ]
    for svg in drawn:
        for path in svg.iter(f"{SVG}path"):
            points = [tuple(map(int, one.split(","))) for one in path.attrib["d"][1:].split()]
            assert all(0 <= x <= 330 and 0 <= y <= int(svg.attrib["height"]) for x, y in points)


def test_overlaid_curves_share_their_axes() -> None:
    (picture,) = overlaid(
        {"aaaaaaaa": ([1, 2], [6.0, 4.0]), "bbbbbbbb": ([1, 2, 3, 4], [6.0, 4.0, 3.0, 2.0])}
    )
    svg = ElementTree.fromstring(base64.b64decode(picture.partition("base64,")[2][:-1]))
    short, long = (path.attrib["d"][1:].split() for path in svg.iter(f"{SVG}path"))
    assert short == long[:2] and long[-1].startswith("250,")
