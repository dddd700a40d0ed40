"""Reads a page that `python -m pipeline report` wrote, as a browser would."""

from html.parser import HTMLParser

SECTIONS = [
    "",
    "Curves",
    "Documents and bytes after each stage",
    "What was removed",
    "Mixture",
    "Scores",
    "Lineage",
    "What a regulator asks of training data",
]
VOID = {"meta", "img", "br", "hr", "link", "input"}
LOADING = {"src", "href", "srcset", "data", "action", "poster", "background"}


class Page(HTMLParser):
    """The text of each section by its heading, which the head lacks; the tags; what would be loaded. Raises
    AssertionError where tags do not close in order.
    """

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = source
        self.sections: dict[str, str] = {}
        self.tags: set[str] = set()
        self.loads: list[str] = []
        self._open: list[str] = []
        self._heading = ""
        self.feed(source)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        found = [value or "" for name, value in attrs if name in LOADING]
        self.loads += [value for value in found if not value.startswith("data:image/png;base64,")]
        if tag not in VOID:
            self._open.append(tag)
        if tag in ("header", "h2"):
            self._heading = ""

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "h2" in self._open:
            self._heading += data
        elif {"header", "section"} & set(self._open):
            self.sections[self._heading] = self.sections.get(self._heading, "") + data.replace("\n", " ")
