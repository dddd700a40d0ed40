"""Pieces of Markdown."""

from collections.abc import Iterable, Sequence


def fenced(text: str) -> str:
    """As code, with a fence longer than any in the text."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}text\n{text}\n{fence}"


def table(names: Sequence[str], rows: Iterable[Iterable[str]], numbers: bool = True) -> str:
    """Markdown; columns of numbers are set to the right."""
    rule = "|---|" + ("---:|" if numbers else "---|") * (len(names) - 1)
    return "\n".join([f"| {' | '.join(names)} |", rule, *(f"| {' | '.join(row)} |" for row in rows)])
