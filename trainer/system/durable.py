"""Files and directories that survive a kill and a power cut: complete under their name, or as they were."""

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainer.system.errors import TrainerError, first_line

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def room_in(place: Path) -> Iterator[None]:
    """While this lasts, a full disk raises a TrainerError that names the `place`, into which a person has
    files written.
    """
    try:
        yield
    except Exception as error:  # safetensors raises its own
        if not is_full(error):
            raise
        reason = getattr(error, "strerror", None) or first_line(error)
        raise TrainerError(
            f"{place}: cannot be written ({reason}): free some space on its disk, or use another disk, and "
            "run again"
        ) from error


def is_full(error: BaseException) -> bool:
    """Whether an error says that a disk is full or a quota is used up, in Python's or in Rust's words."""
    told = re.search(r"\(os error (\d+)\)", str(error))
    return (int(told[1]) if told else getattr(error, "errno", None)) in FULL


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yields a temporary path to write to. Makes the directory.

    On a clean exit the file is called `path`, where it replaces an earlier one; a power cut may damage it.
    After an error it is gone. A killed attempt leaves a hidden file under another name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Two nodes of a cluster may write the same file, in processes with the same number.
    temporary = path.with_name(f".{path.name}.{os.uname().nodename}-{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """As `whole_file`, and on a clean exit the content is on disk."""
    with whole_file(path) as temporary:
        yield temporary
        sync(temporary)


def write_atomically(path: Path, content: str | bytes) -> None:
    """A reader of `path` sees the old content or the new, never half of it. Makes the directory. Raises
    OSError with the name of `path`.
    """
    try:
        with atomic_file(path) as temporary:
            temporary.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        error.filename = str(path)  # that of a full disk has none
        raise


def link_or_copy(source: Path, target: Path) -> None:
    """Gives a file a second name, which takes no room; on another file system, or one without links, a copy.
    Raises OSError.
    """
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(source, target)


def unpublished(path: Path) -> Path:
    """Where `atomic_directory` fills the directory that will be called `path`."""
    return path.with_name(f".{path.name}.tmp")


@contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """Yields a temporary directory to fill: `unpublished(path)`. One process at a time per path.

    On a clean exit all of it is on disk and called `path`, where it replaces an earlier directory. After an
    error it is gone. The next attempt removes what a killed one leaves.
    """
    temporary = unpublished(path)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        sync_directory(temporary)
        shutil.rmtree(path, ignore_errors=True)
        rename_directory(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def rename_directory(temporary: Path, path: Path) -> None:
    """Gives a directory that is on disk its name. Raises OSError when there is something under that name."""
    temporary.rename(path)
    sync(path.parent)


def sync_directory(directory: Path) -> None:
    """Waits until a directory and everything below it are on disk."""
    for path in [*directory.rglob("*"), directory]:
        sync(path)


def sync(path: Path) -> None:
    """Waits until a file's content, or the names in a directory, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_json(path: os.PathLike[str]) -> Any:
    """What a file holds. Raises OSError, and ValueError for one that is no JSON."""
    return json.loads(Path(path).read_text(encoding="utf-8"))


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """The records of a file with one JSON object a line, up to a line that is none: a kill cut it short.

    Empty when there is no such file.
    """
    if not path.exists():
        return []
    records = []
    for line in path.read_bytes().splitlines():
        try:
            records.append(json.loads(line.decode()))
        except ValueError:
            break
    return records
