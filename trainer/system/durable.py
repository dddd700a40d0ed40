"""Files that survive a kill and a power cut: whole under their name, or as they were."""

import os
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """A reader of `path` sees the old text or the new one, never half of it. Makes the directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    sync(temporary)
    temporary.replace(path)


def sync(path: Path) -> None:
    """Waits until a file's content, or the names in a directory, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
