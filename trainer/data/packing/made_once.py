"""Directories that are made once, whichever of several processes asks first."""

import fcntl
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainer.system.durable import atomic_directory, read_json

FACTS, SIZES = "index.json", "sizes"


def made_once(path: Path, make: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """The facts about the directory `path`. If it is not there or damaged, `make` fills a new directory and
    returns the facts; of several processes one does that and the others wait.
    """
    facts = _read(path)
    if facts is None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (path.parent / ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            facts = _read(path)
            if facts is None:
                with atomic_directory(path) as temporary:
                    facts = make(temporary)
                    sizes = {file.name: file.stat().st_size for file in temporary.iterdir()}
                    content = json.dumps(facts | {SIZES: sizes})
                    (temporary / FACTS).write_text(content + "\n", encoding="utf-8")
    return facts


def _read(path: Path) -> dict[str, Any] | None:
    """The facts about a directory whose files are as large as they were; None if there is none."""
    try:
        facts: dict[str, Any] = read_json(path / FACTS)
        if all((path / name).stat().st_size == size for name, size in facts[SIZES].items()):
            return facts
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return None
