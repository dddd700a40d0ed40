"""Benchmarks as files: JSON lines, each with a context, continuations of it, and which of them is right."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from trainer.system.errors import TrainerError


@dataclass(frozen=True)
class Item:
    """A question. `contexts` has one context for each continuation: mostly the same one, but Winogrande's
    differ and its continuations are the same. `gold` is the number of the right continuation, from 0.
    """

    contexts: tuple[str, ...]
    continuations: tuple[str, ...]
    gold: int


def read(path: Path) -> list[Item]:
    """The items of a file, one JSON object in a line: `context` (a text, or a list with one text for each
    continuation), `continuations` (texts) and `gold`. Raises TrainerError with file and line.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise TrainerError(f"{path}: cannot be read: {error}") from error
    items = [_item(line, f"{path}:{number}") for number, line in enumerate(lines, start=1) if line.strip()]
    if not items:
        raise TrainerError(f"{path}: holds no items")
    return items


def _item(line: str, where: str) -> Item:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise TrainerError(f"{where}: is not JSON: {error}") from None
    if not isinstance(row, dict):
        raise TrainerError(f"{where}: must be an object with context, continuations and gold")
    continuations, context, gold = (row.get(key) for key in ("continuations", "context", "gold"))
    if not _are_texts(continuations) or not all(continuations):
        raise TrainerError(f"{where}: `continuations` must be a list of texts, none of them empty")
    contexts = [context] * len(continuations) if isinstance(context, str) else context
    if not _are_texts(contexts) or len(contexts) != len(continuations):
        raise TrainerError(f"{where}: `context` must be a text, or a list with one for each continuation")
    if isinstance(gold, bool) or not isinstance(gold, int) or not 0 <= gold < len(continuations):
        raise TrainerError(f"{where}: `gold` must be the number of the right continuation, counted from 0")
    return Item(tuple(contexts), tuple(continuations), gold)


def _are_texts(value: Any) -> TypeGuard[list[str]]:
    return isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)
