"""Finds the files of a version that are missing, cut, or no longer what was written.

Hashes are remembered by size, times and inode, so a file is read again only where these have changed, on
first use, or on request.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from pipeline.store import keys
from pipeline.store.errors import PipelineError, first_line
from pipeline.store.file_hashes import NAME, FileHashes, seen
from pipeline.store.files import MANIFEST, StoredFile
from pipeline.store.manifest import Version
from trainer.system.wording import counted

OTHER_HASH = "is corrupt: its sha256 differs from the manifest"
FILES_SHOWN = 3


class DamageError(PipelineError):
    """Something in the store is damaged; the message names the file and says how it is made again."""


class Look(IntEnum):
    """How closely to look at a version; each level includes those before it."""

    SIZES = 0
    CHANGED = 1  # hashes files whose size, times or inode changed since they were hashed
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
    """Looks at every file of a version and remembers what it hashed, for the next run."""
    remembered = hashes.remembered(version.path) if Look.SIZES < look < Look.ALL else {}
    found: dict[Path, str] = {}
    to_read: dict[Path, str] = {}
    for file in version.written:
        path, known = version.path / file.path, remembered.get(file.path)
        try:
            stat = path.stat()
        except OSError:
            found[path] = "is missing"
            continue
        if stat.st_size != file.bytes:
            found[path] = f"has {stat.st_size:,} bytes instead of {file.bytes:,}"
        elif known == (*seen(stat), file.sha256):
            continue
        elif look >= Look.UNREAD or known is not None:
            to_read[path] = file.sha256
            remembered.pop(file.path, None)
    for (path, written), sha256 in zip(to_read.items(), hashes.read(list(to_read)), strict=True):
        if sha256 != written:
            found[path] = OTHER_HASH if sha256 else "cannot be read"
    found = {path: what for path, what in found.items() if not version.store_files.drop(path)}
    looked_for: Sequence[str] = [file.path for file in version.written]
    if look < Look.ALL:
        sizes = {file.path: file.bytes for file in version.written}
        looked_for = version.store_files.unlisted(version.path, sizes) if look == Look.UNREAD else ()
    for file in version.written:
        path = version.path / file.path
        if file.path in looked_for and (fault := version.store_files.fault(path, file.sha256)):
            found[path] = fault
    damage = [Damage(path, what) for path, what in found.items()]
    return Inspection(damage, len(version.written), len(to_read), len(remembered))


def described(damage: Sequence[Damage]) -> str:
    """The first damaged files in words."""
    more = f" and {counted(len(damage) - FILES_SHOWN, 'more files')}" if len(damage) > FILES_SHOWN else ""
    return "; ".join(map(str, damage[:FILES_SHOWN])) + more


def remedy(asset: str, variant: str = "") -> str:
    """How a damaged version is made again by its asset, in the partition of a `variant` of the recipe."""
    if asset == keys.TOKENIZER:
        return (
            "the tokenizer is frozen and never replaced unasked: put its files back from a copy, or ask for "
            "a new one by `ops: {tokenizer: {config: {retrain: true}}}` (docs/jobs.md)"
        )
    partition = variant and f" of the variant {variant!r}"
    return f"materialize {asset}{partition}, which moves the damaged version aside and makes it again"


def unreadable(source: Path | StoredFile, error: Exception) -> DamageError:
    """The error for a stored file that no library could read. The next run knows of the damage."""
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
    return DamageError(f"{path} {what}: run the job again, which moves the damaged version aside")
