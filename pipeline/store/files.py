"""The files of a store, wherever they are. Whoever reads or writes a file of a store goes through here."""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from io import RawIOBase
from itertools import count
from pathlib import Path
from typing import BinaryIO

from trainer.system.durable import rename_directory, write_atomically
from trainer.system.wording import shell_word

DAMAGED = "damaged"
MANIFEST = "manifest.json"  # of a version or a checkpoint, which is complete when it has one


class Files:
    """The files of a store that is just a directory, where every file is at hand. `BucketFiles` are those of
    a store in a bucket, for which the directory is a cache.

    Paths are always those below `root`. Paths elsewhere are left alone. A Files can be pickled: worker
    processes on this and other machines get it with their tasks.
    """

    shared = False  # by other machines, so that this one lacks what was made there

    def __init__(self, root: Path):
        self.root = root

    @property
    def place(self) -> str:
        """The address of the bucket, or the directory."""
        return str(self.root)

    def url(self, path: Path) -> str:
        return path.absolute().as_uri()

    # Files of versions and checkpoints, which never change
    def fetch(self, path: Path) -> Path:
        """Makes sure that a file can be opened under its path, which it returns. Raises FetchError."""
        return path

    def open(self, path: Path) -> RawIOBase | BinaryIO:
        """Opens a file of which only what is read is fetched. Its content is not checked."""
        return path.open("rb")

    def fetch_all(self, paths: Sequence[Path]) -> None:
        """As `fetch`, for several files at a time."""

    def fetch_folder(self, folder: Path) -> Path:
        """As `fetch`, for all files below a folder, such as those of a checkpoint."""
        return folder

    def drop(self, path: Path) -> bool:
        """Forgets a missing or damaged file that has a copy elsewhere. Returns False if it has none."""
        return False

    def fault(self, path: Path, sha256: str) -> str:
        """Says in words what is wrong with the copy of a file that is elsewhere, which it fetches."""
        return ""

    def unlisted(self, folder: Path, sizes: Mapping[str, int]) -> Sequence[str]:
        """Which files of a version have no copy of their size elsewhere, where files have copies."""
        return ()

    def removal(self, version: Path) -> str:
        """What a person does so that a damaged version or checkpoint counts no more."""
        return f"rm -r {shell_word(version)}"

    def is_version(self, path: Path) -> bool:
        """Whether a version is or was published in this directory. A version that has lost its manifest is
        known by the lock beside it.
        """
        locked = path.with_name(f".{path.name}.lock")
        return (path / MANIFEST).is_file() or (path.is_dir() and locked.is_file())

    # Versions in the making
    def begin(self, version: Path) -> Path:
        """The directory in which a version is made, with the records of its finished parts."""
        path = version.with_name(f".{version.name}.partial")
        path.mkdir(exist_ok=True)
        return path

    def holds(self, path: Path, sha256: str) -> bool | None:
        """Whether the copy of a file elsewhere has this content; None where files have no copies."""
        return None

    def put_files(self, version: Path, written: Mapping[str, str]) -> None:
        """Keeps files of a version in the making, which are complete. `written`: their sha256 by their path
        in it.
        """

    def put_missing(self, version: Path, written: Mapping[str, tuple[int, str]]) -> None:
        """As `put_files`, for those of the files that were not put yet. `written`: their bytes and sha256."""

    def link(self, source: Path, target: Path, size: int) -> bool:
        """Gives a file of another version, of `size` bytes, a second name. Returns False if the file is too
        large.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        os.link(source, target)
        return True

    def publish(self, made: Path, version: Path, manifest: str) -> bool:
        """Makes a version visible, and moves a damaged one aside. Returns False if another machine has
        published it meanwhile.
        """
        write_atomically(made / MANIFEST, manifest)
        if version.exists():  # damaged: nothing looks for it under its new name, until `gc` removes it
            names = (f".{version.name}.{DAMAGED}-{number}" for number in count(1))
            rename_directory(
                version, next(path for path in map(version.with_name, names) if not path.exists())
            )
            shutil.rmtree(reports_on(version), ignore_errors=True)
        rename_directory(made, version)
        return True

    def share(self, path: Path) -> None:
        """Keeps a temporary file, which is complete, where workers on other machines can read it."""

    def unshare(self, path: Path) -> None:
        """Removes a temporary file, or those in a folder, that no worker needs any more."""

    # Small files, which may be replaced
    def pull(self, path: Path) -> str | None:
        """Brings the newest content of a small file, or removes the file if there is none any more. Returns
        the ETag, which is empty where files have none; None if there is no file.
        """
        return "" if path.exists() else None

    def pull_folder(self, folder: Path) -> dict[Path, str]:
        """As `pull`, for all files below a folder."""
        return {}

    def pull_manifest(self, version: Path) -> None:
        """As `pull`, for the manifest of a version."""

    def pull_manifests(self, folder: Path) -> None:
        """As `pull_manifest`, for all versions of a key."""

    def push(self, path: Path, replacing: str | None = None) -> bool:
        """Keeps a small file that was written here. `replacing` is the ETag of the only content that it may
        replace, empty if there must be none. Returns False if there is another.
        """
        return True

    # Training runs
    def pull_runs(self, run: Path | None = None) -> None:
        """Brings the small files of a run or of all runs and their checkpoints, not the weights."""

    def is_saved(self, checkpoint: Path) -> bool:
        """Whether a checkpoint is complete."""
        return checkpoint.exists()

    def uploading(self, run: Path, reads: Sequence[Path]) -> AbstractContextManager[Callable[[], None]]:
        """While this lasts, what a trainer writes to its run is kept for other machines, and no other machine
        trains the run. `reads` are the files that the trainer has mapped. Yields a function that raises
        ClaimLostError once this machine must stop training the run.
        """
        return nullcontext(lambda: None)

    # Removal
    def versions(self) -> dict[Path, int] | None:
        """The directories of all versions that are old enough to be removed, complete or not, with their
        bytes. Brings the files that name versions: manifests, the lineage of exports and the small files of
        runs. Returns None where the directory of the store itself tells.
        """
        return None

    def remove(self, folder: Path) -> None:
        """Removes the copies of a folder's files that are elsewhere, the manifest first."""

    def keeps_removed(self) -> bool:
        """Whether what is removed still takes space, as an old version in the bucket."""
        return False

    def abort_old_uploads(self) -> None:
        """Frees what killed processes have half uploaded."""


def reports_on(version: Path) -> Path:
    """The directory of the reports on the version at this path."""
    return version.with_name(f".{version.name}.reports")


@dataclass(frozen=True)
class StoredFile(os.PathLike[str]):
    """A file of a store, which is fetched when it is opened. It then lies at `path`."""

    path: Path
    files: Files = field(compare=False, repr=False)

    def __fspath__(self) -> str:
        return str(self.files.fetch(self.path))

    def __str__(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        return self.path.name

    def open(self) -> RawIOBase | BinaryIO:
        return self.files.open(self.path)

    def read_text(self, encoding: str = "utf-8") -> str:
        return self.files.fetch(self.path).read_text(encoding)


@dataclass(frozen=True)
class Scratch:
    """A directory for what the tasks of a step leave to each other. `apart`: they may run on other machines,
    which do not share the directory.
    """

    path: Path
    files: Files
    apart: bool

    def written(self, path: Path) -> StoredFile:
        """A file in the directory that is complete, for whichever task reads it."""
        if self.apart:
            self.files.share(path)
        return StoredFile(path, self.files)
