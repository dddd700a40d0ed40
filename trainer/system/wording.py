"""Numbers in sentences."""

SINGULAR = {"corpora": "corpus", "entries": "entry", "copies": "copy", "processes": "process"}


def counted(number: int, many: str) -> str:
    """`1 training run`, `1,200 training runs`: `many` is the plural."""
    one = (SINGULAR.get(word, word.removesuffix("s")) for word in many.split())
    return f"{number:,} {' '.join(one) if number == 1 else many}"
