"""Paths as people write them."""

from contextlib import suppress
from pathlib import Path


def at_home(path: str | Path) -> Path:
    """A path with the home directory that `~` or `~name` at its beginning stands for. Where nobody has this
    name, the path stays as it is, since a file can be called so: Word's `~$report.docx`.
    """
    with suppress(RuntimeError):
        return Path(path).expanduser()
    return Path(path)
