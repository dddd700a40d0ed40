"""Finds the files of a version that are missing, cut, or no longer what was written.

Hashes are remembered by size, time and inode, so a file is read again only where these have changed, on first
use, or on request.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path

from pipeline.store import keys
from pipeline.store.errors import PipelineError, first_line
from pipeline.store.file_hashes import NAME, FileHashes
from pipeline.store.files import MANIFEST, StoredFile
from pipeline.store.manifest import File, Version

OTHER_HASH = "is not what was written: its sha256 is another"
SHOWN = 3


class DamageError(PipelineError):
    """Something in the store is damaged; the message names the file and says how it is made again."""


class Look(IntEnum):
    """How closely to look at a version; each level includes those before it."""

    SIZES = 0
    CHANGED = 1  # hashes files whose size, time or inode changed since they were hashed
    UNREAD = 2  # hashes files that were never hashed
    ALL = 3  # hashes every file


@dataclass(frozen=True)
class Damage:
    """A damaged file, and what is wrong with it."""

    path: Path
    what: str

    def __str__(self) -> str:
        return f"{self.path} {self.what}"


@dataclass(frozen=True)
class Inspection:
    """What looking at a version found. `read`: how many of its `files` were hashed now; `remembered`: how
    many are unchanged since they were.
    """

    damage: Sequence[Damage]
    files: int
    read: int
    remembered: int


def inspect(version: Version, hashes: FileHashes, look: Look) -> Inspection:
    """Looks at every file of a version. What is hashed is remembered, so damage that was found once is known
    to the next run.
    """
    stored = version.store_files
    listed = [file for part in version.parts for file in part.files.values()]
    found = _inspect(version, listed, hashes, look)
    damage = [one for one in found.damage if not stored.drop(one.path)]
    for file in listed if look == Look.ALL else ():
        path = version.path / file.path
        if fault := stored.fault(path, file.sha256):
            damage.append(Damage(path, fault))
    return replace(found, damage=damage)


def _inspect(version: Version, files: Sequence[File], hashes: FileHashes, look: Look) -> Inspection:
    remembered = hashes.remembered(version.path) if Look.SIZES < look < Look.ALL else {}
    damage: list[Damage] = []
    to_read: list[File] = []
    for file in files:
        try:
            stat = (version.path / file.path).stat()
        except OSError:
            damage.append(Damage(version.path / file.path, "is missing"))
            continue
        known = remembered.get(file.path)
        if stat.st_size != file.bytes:
            what = f"has {stat.st_size:,} bytes instead of {file.bytes:,}"
            damage.append(Damage(version.path / file.path, what))
        elif known != (stat.st_size, stat.st_mtime_ns, stat.st_ino, file.sha256) and (
            look >= Look.UNREAD or known is not None
        ):
            to_read.append(file)
    damage += _other_than_written(version.path, to_read, hashes)
    return Inspection(damage, len(files), len(to_read), len(remembered.keys() - {f.path for f in to_read}))


def _other_than_written(directory: Path, files: Sequence[File], hashes: FileHashes) -> Iterator[Damage]:
    found = hashes.read([directory / file.path for file in files]) if files else []
    for file, sha256 in zip(files, found, strict=True):
        if sha256 != file.sha256:
            what = OTHER_HASH if sha256 else "cannot be read"
            yield Damage(directory / file.path, what)


def described(damage: Sequence[Damage]) -> str:
    """The first damaged files in words."""
    more = f" and {len(damage) - SHOWN:,} more files" if len(damage) > SHOWN else ""
    return "; ".join(map(str, damage[:SHOWN])) + more


def remedy(key: str) -> str:
    """How a damaged version of `key` is made again."""
    if key == keys.TOKENIZER:
        return (
            "the tokenizer is frozen and never replaced unasked: put its files back from a copy, or ask for "
            "a new one by `ops: {tokenizer: {config: {retrain: true}}}` (docs/commands.md)"
        )
    return f"materialize {keys.made_with(key)}, which moves the damaged version aside and makes it again"


def unreadable(source: Path | StoredFile, error: Exception) -> DamageError:
    """The error for a stored file that a library could not read. Remembers its hash, so that the next run
    knows of the damage.
    """
    path = source.path if isinstance(source, StoredFile) else source
    what = f"is damaged ({first_line(error)})"
    if not path.exists():
        what = "is missing"
    elif isinstance(error, OSError) and error.errno:
        what = f"cannot be read ({error.strerror})"
    if isinstance(source, StoredFile) and source.files.drop(path):
        return DamageError(f"{path} {what}: run again, which fetches it from {source.files.place} again")
    root = next((parent for parent in path.parents if (parent / NAME).exists()), None)
    version = next((parent for parent in path.parents if (parent / MANIFEST).exists()), None)
    if root is None or version is None or not version.is_relative_to(root):
        return DamageError(f"{path} {what}: make it again")
    FileHashes(root).read([path])
    return DamageError(f"{path} {what}: {remedy(version.relative_to(root).parent.as_posix())}")
