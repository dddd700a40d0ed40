"""Evaluation texts planted into other documents, in every dress in which a crawl shows them."""

import random
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple


class Planted(NamedTuple):
    kind: str
    quote: str
    document: str


def _lines(text: str, words: int) -> str:
    split = text.split()
    return "\n".join(" ".join(split[i : i + words]) for i in range(0, len(split), words))


DRESSES: dict[str, Callable[[str], str]] = {
    "verbatim": lambda text: text,
    "upper case": str.upper,
    "without punctuation": lambda text: re.sub(r"[^\w\s]", " ", text),
    "other punctuation": lambda text: re.sub(r"[.,;:!?]", " /", text),
    "white space": lambda text: re.sub(r"\s+", " \t ", text),
    "four words a line": lambda text: _lines(text, 4),
    "bulleted": lambda text: "* " + _lines(text, 8).replace("\n", "\n* "),
    "in bold": lambda text: f"**{text}**",
}
CUTS: dict[str, Callable[[list[str]], list[str]]] = {
    "all of it": lambda words: words,
    "a tenth cut at each end": lambda words: words[len(words) // 10 : len(words) - len(words) // 10],
    "its first half": lambda words: words[: max(20, len(words) // 2)],
    "its last half": lambda words: words[-max(20, len(words) // 2) :],
    "twenty words of its middle": lambda words: words[max(0, len(words) // 2 - 10) :][:20],
}
PLACES: dict[str, Callable[[str, str, random.Random], str]] = {
    "alone": lambda quote, host, drawn: quote,
    "at the beginning": lambda quote, host, drawn: f"{quote}\n\n{host}",
    "at the end": lambda quote, host, drawn: f"{host} {quote}",
    "in the middle": lambda quote, host, drawn: (
        host[: (at := drawn.randrange(len(host) + 1))] + f" {quote} {host[at:]}"
    ),
}


def planted(texts: Sequence[str], hosts: Sequence[str], seed: int = 0) -> list[Planted]:
    """Each text once, in a host of its own: all dresses, cuts and places in turn."""
    drawn, found = random.Random(seed), []
    kinds = [(dress, cut, place) for dress in DRESSES for cut in CUTS for place in PLACES]
    drawn.shuffle(kinds)
    for number, (text, host) in enumerate(zip(texts, hosts, strict=True)):
        dress, cut, place = kinds[number % len(kinds)]
        quote = DRESSES[dress](" ".join(CUTS[cut](text.split())))
        found.append(Planted(f"{dress}, {cut}, {place}", quote, PLACES[place](quote, host, drawn)))
    return found
