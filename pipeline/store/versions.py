"""The versions of a directory: opened, found and checked, whatever recipe they belong to.

<root>/<key>/<fingerprint>/manifest.json    written last: a directory with this name is complete
<root>/<key>/<fingerprint>/<table>/<part>   the files that the manifest lists
<root>/<key>/.<fingerprint>.reports/        reports made later, outside of the version, which never changes
<root>/<key>/.<fingerprint>.partial/        work in progress; its finished parts survive a kill
<root>/<key>/.<fingerprint>.lock            held by the process that makes the version
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from pipeline.store import locks
from pipeline.store.bucket.files import files_in
from pipeline.store.damage import Damage, DamageError, Look, described, inspect, remedy
from pipeline.store.errors import PipelineError, first_line
from pipeline.store.file_hashes import FileHashes
from pipeline.store.files import MANIFEST, Files
from pipeline.store.keys import Key
from pipeline.store.manifest import Version, read_version
from pipeline.store.work import Work

KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
RUNS_LOCK = ".runs.lock"


class StoreError(PipelineError):
    """Something expected in the store is missing or incomplete."""


class NotMadeError(StoreError):
    """`what` says that something has not been made. The message also says how to make it: the `job` makes
    `asset`.
    """

    def __init__(self, what: str, job: str = "pretrain", asset: str = "it"):
        super().__init__(f"{what}: materialize {asset} (for example with the job `{job}`) first")
        self.what = what


class Versions:
    """A directory of versions. Readers see a complete version or none."""

    def __init__(self, root: Path, files: Files | None = None):
        self.root = root
        self.files = files or files_in(root)

    @cached_property
    def hashes(self) -> FileHashes:
        """What is remembered of the files of this store, and of source files."""
        return FileHashes(self.root)

    def directory(self, key: Key) -> Path:
        if not KEY.fullmatch(key):
            raise StoreError(
                f"{key!r} is not a valid key: use letters, digits, '_', '-' and '.' between single slashes"
            )
        return self.root / key

    def key_of(self, folder: Path) -> Key:
        """The key whose versions lie in a folder."""
        return Key.from_path(folder.relative_to(self.root).as_posix())

    def open(self, key: Key, name: str) -> Version:
        """Version `name` of `key`, whose files may be damaged. Raises StoreError if it is incomplete."""
        path = self.directory(key) / name
        self.files.pull_manifest(path)
        try:
            return read_version(key, path, self.files)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else first_line(error)
            raise StoreError(
                f"{path / MANIFEST} is missing or damaged ({reason}): {self._remedy(key)}"
            ) from error

    def _readable(self, key: Key, name: str | None) -> Version | None:
        """As `open`; None if the version is incomplete."""
        with suppress(StoreError):
            return self.open(key, name) if name else None
        return None

    def newest_first(self, key: Key) -> Iterator[Version]:
        """All complete versions of `key`. Their files may be damaged."""
        self.files.pull_manifests(self.directory(key))
        made = self.directory(key).glob(f"[!.]*/{MANIFEST}")
        for path in sorted(made, key=_time_of, reverse=True):
            if version := self._readable(key, path.parent.name):
                yield version

    def existing(self, work: Work) -> Version | None:
        """The version that this work would make, if it is complete and not damaged."""
        version = self._readable(work.key, work.name)
        return replace(version, reused=True) if version and not self.damage(version) else None

    def damage(self, version: Version, look: Look = Look.CHANGED) -> Sequence[Damage]:
        """A version's damaged files. Without more `look`, only what changed since it was hashed is read."""
        return inspect(version, self.hashes, look).damage

    def check(self, *versions: Version) -> None:
        """Raises DamageError if a file of these versions is damaged. Reads the files that were never read."""
        for version in versions:
            if damage := self.damage(version, Look.UNREAD):
                raise DamageError(f"{described(damage)}: {self._remedy(version.key)}")

    def _damage_at(self, work: Work) -> str:
        """What is damaged where the version of this work would be. Empty if nothing is there."""
        path = self.directory(work.key) / work.name
        if not self.files.is_version(path):
            return ""
        try:
            return described(self.damage(self.open(work.key, path.name)))
        except StoreError:
            return f"{path / MANIFEST} is missing or damaged"

    def _remedy(self, key: Key) -> str:
        return remedy(key)

    def locked(self, key: Key, name: str) -> AbstractContextManager[None]:
        """Waits for the process that works under this name. The lock ends with the process that holds it."""
        waiting = f"{key}: another process is making it, waiting for that process"
        return locks.exclusive(self.directory(key) / f".{name}.lock", waiting)

    @contextmanager
    def idle(self) -> Iterator[None]:
        """No run can begin before this exits. Raises PipelineError while one prepares data."""
        with locks.alone(self.root / RUNS_LOCK) as nobody_prepares:
            if not nobody_prepares:
                raise PipelineError(
                    "a run is preparing data in this store, so nothing was removed: repeat this once the run "
                    "trains or has ended"
                )
            yield


def _time_of(manifest: Path) -> int:
    """When a version was published; 0 if `gc` has removed it meanwhile."""
    with suppress(FileNotFoundError):
        return manifest.stat().st_mtime_ns
    return 0
