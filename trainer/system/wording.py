"""Numbers and values in sentences."""

import os
import re
import shlex
from collections.abc import Mapping
from typing import Any

SINGULAR = {"corpora": "corpus", "entries": "entry", "copies": "copy", "processes": "process"}

SHOWN_CORPORA = 4  # by name in a line

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


def begins(start: Mapping[str, Any]) -> str:
    """The message with which a training begins, as a line of its log."""
    begun = f"resumes from {start['resumed_from']}" if start["resumed_from"] else "begins"
    size = f"{start['parameters']:,} parameters, {start['flops_per_token'] / 1e6:,.1f} MFLOP per token"
    where = f"{start['device']}, {counted(start['processes'], 'processes')}"
    passes = [f"{times:,.2f} epochs of {name}" for name, times in start["epochs"].items()]
    if len(passes) > SHOWN_CORPORA:
        least, most = min(start["epochs"].values()), max(start["epochs"].values())
        passes = [f"{least:,.2f} to {most:,.2f} epochs of {len(passes):,} corpora"]
    facts = [f"{size}, {start['precision']} on {where}, attention {start['attention']}"]
    facts += [", ".join([f"{start['tokens_total']:,} tokens", *passes])]
    if padding := max(start["padding"].values(), default=0):
        facts += [f"up to {padding:.1%} padding"]
    for shared in start["trunks"][-1:]:
        facts += [f"its first {shared['step']:,} steps are those of run {shared['run']}"]
    return f"{begun}: {'; '.join(facts)}"


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
