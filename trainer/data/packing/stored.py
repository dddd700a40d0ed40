"""Directories that are made once, whichever of several processes asks first."""

import fcntl
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainer.system.durable import atomic_directory

FACTS = "index.json"


def made_once(path: Path, make: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """The facts about the directory `path`. If it is not there, `make` fills a new directory and returns the
    facts; of several processes one does that and the others wait.
    """
    if not (path / FACTS).exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with (path.parent / ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (path / FACTS).exists():
                with atomic_directory(path) as temporary:
                    facts = make(temporary)
                    (temporary / FACTS).write_text(json.dumps(facts) + "\n", encoding="utf-8")
    return json.loads((path / FACTS).read_text(encoding="utf-8"))
