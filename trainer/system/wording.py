"""Numbers and values in sentences."""

import os
import re
import shlex
from typing import Any

SINGULAR = {"corpora": "corpus", "entries": "entry", "copies": "copy", "processes": "process"}

KINDS = {
    "NoneType": "null",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "list": "a list",
    "dict": "an object",
}


def counted(number: int, many: str) -> str:
    """`1 training run`, `1,200 training runs`: `many` is the plural."""
    one = (SINGULAR.get(word, word.removesuffix("s")) for word in many.split())
    return f"{number:,} {' '.join(one) if number == 1 else many}"


def kind_of(value: Any) -> str:
    """What a value of a file is, in the words of people who write no Python: `a whole number`."""
    name = type(value).__name__
    return KINDS.get(name, f"a value of type {name}")


def shell_word(value: object) -> str:
    """A path or another value as it can be pasted into a shell, also if it has lines or is no UTF-8."""
    word = str(value)
    if word.isprintable():
        return shlex.quote(word)
    escaped = re.sub(rb"[^ -&(-[\]-~]", lambda one: b"\\x%02x" % one[0][0], os.fsencode(word))
    return f"$'{escaped.decode()}'"
