"""Pieces of a page that loads nothing: pictures are inside, and whatever is data is escaped."""

import re
from collections.abc import Iterable, Sequence
from html import escape

from pipeline.reports.images import as_text
from pipeline.reports.tables import NUMBER

NOT_TEXT = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff]")  # HTML may not contain them


class Html(str):
    """What is HTML already. Any other value is escaped where it is put into some."""


def joined(content: Iterable[object]) -> Html:
    return Html("".join(one if isinstance(one, Html) else _escaped(one) for one in content))


def _escaped(value: object) -> str:
    return escape(NOT_TEXT.sub("\ufffd", f"{value:,}" if type(value) is int else str(value)))


def element(tag: str, *content: object, kind: str = "") -> Html:
    """An element with its content. `kind`: its class."""
    return Html(f"<{tag}{kind and f' class={kind}'}>{joined(content)}</{tag}>")


def table(names: Sequence[str], rows: Sequence[Sequence[object]]) -> Html:
    """Rows below the names of their columns. Numbers stand on the right."""
    numbers = [all(NUMBER.fullmatch(_escaped(cell)) for cell in column) for column in zip(*rows, strict=True)]
    kinds = ["number" if is_number else "" for is_number in numbers]
    lines = [("th", names), *(("td", row) for row in rows)]
    cells = (
        [element(tag, *one, kind=kind) for *one, kind in zip(row, kinds, strict=True)] for tag, row in lines
    )
    return element("div", element("table", *(element("tr", *row) for row in cells)), kind="wide")


def quote(caption: str, text: str) -> Html:
    """The text of a document or of a model, under what is said of it."""
    return element("figure", element("figcaption", caption), element("blockquote", text))


def picture(png: bytes, title: str) -> Html:
    return Html(f'<img alt="{_escaped(title)}" src="data:image/png;base64,{as_text(png)}">')
