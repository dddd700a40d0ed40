"""Tables and texts for a terminal."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.store.params import MESSAGE

TITLE = 80  # characters that are shown of a title
CONTROL = re.compile(r"[\0-\x1f\x7f-\x9f\ud800-\udfff]")
NUMBER = re.compile(r"-?[\d,]*(\.\d+)?( ?[kMGT]?B|%)?")


@dataclass(frozen=True)
class Output:
    """What a command prints. `everything` is what JSON has. `lines` may be made only when they are read."""

    everything: Any
    lines: Iterable[str]

    def shown(self, as_json: bool) -> str:
        if as_json:
            return json.dumps(self.everything, indent=1, ensure_ascii=False, default=asdict)
        return "\n".join(self.lines)


def lines(rows: Sequence[Mapping[str, str]], shown: Sequence[str] = ()) -> Iterator[str]:
    """The columns `shown`, else those of the first row, below their names. Numbers stand on the right."""
    names = shown or list(rows[0])
    table = [dict(zip(names, names, strict=True)), *rows]
    widths = {name: max(len(row[name]) for row in table) for name in names}
    right = {name for name in names if all(NUMBER.fullmatch(row[name]) for row in rows)}
    for row in table:
        cells = (row[n].rjust(widths[n]) if n in right else row[n].ljust(widths[n]) for n in names)
        yield "  ".join(cells).rstrip()


def table(names: str, rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """As `lines`, with the names in one text, separated by commas."""
    return lines([dict(zip(names.split(","), row, strict=True)) for row in rows], names.split(","))


def markdown(rows: Sequence[Mapping[str, str]], shown: Sequence[str] = ()) -> str:
    """The columns `shown`, as far as there are any, else all."""
    names = [name for name in shown or rows[0] if name in rows[0]]
    lines = [names, ["---"] * len(names), *([row[name] for name in names] for row in rows)]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def counts(rows: Iterable[tuple[str, int]]) -> Iterator[str]:
    """Names and numbers, a line for each."""
    return (f"{name:<32}{number:>14,}" for name, number in rows)


def called(title: str | None, source: str | None) -> str:
    """What people call a document, and the file that it is from, as far as they are known, on one line."""
    return ", ".join(filter(None, (titled(title), source))) or "-"


def titled(title: str | None) -> str:
    """The title on one line, in quotes; empty without one."""
    return quoted(" ".join(title.split()), TITLE) if title else ""


def quoted(text: str, characters: int = 200) -> str:
    """The beginning of a text on one line, in quotes."""
    text = _message_lines(text)
    shown = f"{text[:characters]}..." if len(text) > characters else text
    return json.dumps(shown, ensure_ascii=False)


def printable(text: str) -> str:
    """The text with each line indented and without control characters, which a terminal would obey."""
    return "\n".join(
        f"    {CONTROL.sub('�', line.expandtabs())}" for line in _message_lines(text).splitlines()
    )


def _message_lines(text: str) -> str:
    """A conversation with a line for each message, `user: Hello`. Other texts as they are."""
    if not text.startswith(MESSAGE):
        return text
    from pipeline.stages import chat  # here, since most tables are of no conversations

    return "\n\n".join(
        "\n".join(f"{role}: {content}" for role, content in conversation)
        for conversation in chat.parsed(text)
    )
