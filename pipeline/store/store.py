"""Versions on disk: fingerprints, manifests, atomic publishing.

<root>/<key>/<fingerprint>/manifest.json    written last: a directory with this name is complete
<root>/<key>/<fingerprint>/<table>/<part>   the files that the manifest lists
<root>/<key>/.<fingerprint>.reports/        reports made later, outside of the version, which never changes
<root>/<key>/.<fingerprint>.partial/        work in progress; its finished parts survive a kill
<root>/<key>/.<fingerprint>.lock            held by the process that makes the version

A version is found by what made it, so any number of recipes and runs share a store. Which version a recipe
used last decides its raw documents where nothing looks at the source, its tokenizer, and what `gc` keeps.
"""

import errno
import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from pipeline.store import keys, locks
from pipeline.store.atomic import writable
from pipeline.store.bucket.files import cache_of, files_in
from pipeline.store.damage import Damage, DamageError, Look, described, inspect, remedy
from pipeline.store.draft import Draft
from pipeline.store.errors import PipelineError, first_line
from pipeline.store.file_hashes import FileHashes
from pipeline.store.files import MANIFEST, Files
from pipeline.store.fingerprint import canonical_json
from pipeline.store.last_versions import LastVersions, RecipeName
from pipeline.store.manifest import Version, read_version
from pipeline.store.work import Work
from trainer.system import history

log = logging.getLogger(__name__)

KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
RUNS_LOCK = ".runs.lock"


class StoreError(PipelineError):
    """Something expected in the store is missing or incomplete."""


class Wanted(Protocol):
    """Says which version of a key is wanted, as a recipe does."""

    @property
    def name(self) -> RecipeName: ...

    def find(self, store: "Store", key: str) -> "Version | Work":
        """The version of `key` that follows from the recipe, or the work that would make it. Raises
        StoreError when a version that it is made from is missing.
        """
        ...

    def asset(self, key: str) -> str:
        """The key of the asset that makes `key`: mostly itself."""
        ...


class Store:
    """A directory of versions. Readers see a complete version or none.

    With a `recipe`, `current` finds its versions; without one, the newest. One object serves one run, which
    continues with the versions that it made or reused, whatever other runs do to the store.
    """

    def __init__(self, root: Path, recipe: Wanted | None = None, files: Files | None = None):
        self.root = root
        self.files = files or files_in(root)
        self._recipe = recipe
        self._used: dict[str, Version] = {}
        self._last = recipe and LastVersions(self.files, recipe.name)
        self.before_making: Callable[[], None] = lambda: None  # a check that is not worth it without work

    def __reduce__(self) -> tuple[type["Store"], tuple[Path, None, Files]]:
        """Worker processes write parts, for which they need no recipe. On another machine nothing at `root`
        says that the store is in a bucket.
        """
        return Store, (self.root, None, self.files)

    @cached_property
    def hashes(self) -> FileHashes:
        """What is remembered of the files of this store, and of source files."""
        return FileHashes(self.root)

    def directory(self, key: str) -> Path:
        if not KEY.fullmatch(key):
            raise StoreError(
                f"{key!r} is not a valid key: use letters, digits, '_', '-' and '.' between single slashes"
            )
        return self.root / key

    def current(self, key: str) -> Version:
        """The version of `key` that this run made or reused, else the one that follows from the recipe.
        Raises StoreError when there is none.
        """
        if key not in self._used:
            found = self._recipe.find(self, key) if self._recipe else next(self.newest_first(key), None)
            if not isinstance(found, Version):
                raise StoreError(self._missing(key, found))
            self._used[key] = found
        return self._used[key]

    def data_versions(self, read: Iterable[str]) -> dict[str, str]:
        """The data version of each key's `current` version: the inputs of a Work that reads them."""
        return {key: self.current(key).data_version for key in read}

    def _missing(self, key: str, work: Work | None) -> str:
        newest = next(self.newest_first(key), None) if work else None
        different = " and ".join(work.differences(newest.manifest)) if work and newest else ""
        damage = self._damage_at(work) if work else ""
        if newest and not (damage or different):
            damage = described(self.damage(newest))
        if damage:
            return f"{damage}: {self._remedy(key)}"
        asset = self._asset(key)
        first = f"materialize {'it' if asset == key else asset} first"
        if not different:
            return f"{key} has not been made yet: {first}"
        return (
            f"{key} has not been made for this recipe yet, the newest version has other {different}: {first}"
        )

    def _asset(self, key: str) -> str:
        return self._recipe.asset(key) if self._recipe else key

    def _remedy(self, key: str) -> str:
        return remedy(self._asset(key), self._recipe.name.variant if self._recipe else "")

    def last_used(self, key: str) -> Version | None:
        """The version that the last run of this recipe used, if it is still there."""
        name = self._last.get(key) if self._last else None
        return self._readable(key, name)

    def used_by_recipe_file(self, key: str) -> list[Path]:
        """The versions that this recipe, then others in its file used last. They may be gone."""
        return [self.directory(key) / name for name in self._last.of_file(key)] if self._last else []

    def in_use_since(self, key: str) -> int:
        """Since when the recipe uses its version of `key`, in nanoseconds since 1970; 0 if it uses none."""
        return self._last.since(key) if self._last and self._last.get(key) else 0

    def latest(self, key: str, code_version: str, params: Any) -> Version | None:
        """The version made with these settings, from whatever inputs, that this run or this recipe used
        last, else the newest such version. Its files may be damaged: `damage` tells.
        """
        settings = (code_version, json.loads(canonical_json(params)))
        for version in self.candidates(key):
            made_with = version.manifest["code_version"], version.manifest["params"]
            if made_with == settings:
                return version
        return None

    def candidates(self, key: str) -> Iterator[Version]:
        """All versions of `key`: first the ones that this run and this recipe used last, then by age."""
        yield from filter(None, (self._used.get(key), self.last_used(key)))
        yield from self.newest_first(key)

    def find(self, work: Work) -> Version | None:
        """The version that this work would make, if it exists and is not damaged."""
        version = self._readable(work.key, work.name)
        return replace(version, reused=True) if version and not self.damage(version) else None

    def damage(self, version: Version, look: Look = Look.CHANGED) -> Sequence[Damage]:
        """The damaged files of a version. Without more `look`, only what has changed on disk since it was
        hashed is read.
        """
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

    def reuse(self, work: Work) -> Version | None:
        """Finds the version of a work as `find` does. This run then continues with that version."""
        version = self.find(work)
        if version:
            self.use(version)
        return version

    def use(self, version: Version) -> None:
        """This run continues with the version, and the recipe is recorded to use it."""
        self._used[version.key] = version
        if self._last:
            self._last.use(version.key, version.path.name)

    def go_on_with(self, version: Version) -> None:
        """This run continues with the version, as the run did that it takes over from. What the recipe uses
        stays as it is recorded.
        """
        self._used[version.key] = version

    @contextmanager
    def making(self, work: Work) -> Iterator["Version | Draft"]:
        """Yields the version if it exists already, else a draft to fill and publish. A second process that
        makes the same version waits.
        """
        with writable(self.root), self.locked(work.key, work.name):
            version = self.reuse(work)
            if version is None:
                self._begin(work)
            yield version or Draft(self, work)

    def _begin(self, work: Work) -> None:
        """Raises DamageError when what the work is made from is damaged."""
        self.before_making()
        if damage := self._damage_at(work):
            log.warning("%s: it is made again, and what is damaged is moved aside", damage)
        inputs = {keys.DEDUP if keys.is_dedup_part(name) else name for name in work.inputs}
        self.check(*(self._used[key] for key in sorted(inputs & self._used.keys())))

    def locked(self, key: str, name: str) -> AbstractContextManager[None]:
        """Waits for the process that works under this name. The lock ends with the process that holds it."""
        return locks.exclusive(self.directory(key) / f".{name}.lock", key)

    @contextmanager
    def in_progress(self) -> Iterator[None]:
        """While this lasts, nothing is removed from the store: a run may use what is not yet recorded."""
        with writable(self.root), locks.shared(self.root / RUNS_LOCK):
            if self._last:
                self._last.describe()
            yield

    def idle(self) -> AbstractContextManager[bool]:
        """Yields whether no run is in progress. If so, none can begin before this exits."""
        return locks.alone(self.root / RUNS_LOCK)

    def open(self, key: str, name: str) -> Version:
        """The version in the directory `name` of `key`. Raises StoreError when it is incomplete."""
        path = self.directory(key) / name
        self.files.pull_manifest(path)
        try:
            return read_version(key, path, self.files)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else first_line(error)
            raise StoreError(
                f"{path / MANIFEST} is missing or damaged ({reason}): {self._remedy(key)}"
            ) from error

    def _readable(self, key: str, name: str | None) -> Version | None:
        """The version with this name, whose files may be damaged. None if its manifest is."""
        with suppress(StoreError):
            return self.open(key, name) if name else None
        return None

    def newest_first(self, key: str) -> Iterator[Version]:
        """All versions of `key` with a sound manifest, whatever recipe they belong to."""
        self.files.pull_manifests(self.directory(key))
        made = self.directory(key).glob(f"[!.]*/{MANIFEST}")
        for path in sorted(made, key=lambda path: path.stat().st_mtime_ns, reverse=True):
            if version := self._readable(key, path.parent.name):
                yield version


def check_place(root: Path) -> None:
    """Makes the directory of a store where there is none. Raises StoreError where that is not possible. A
    store that can only be read is none of these: a run that finds everything made in it succeeds.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        if not os.access(root, os.W_OK) and not any(root.iterdir()):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise StoreError(
            f"the store {root} cannot be written ({error.strerror}): name another directory in "
            f"{history.STORE_VARIABLE}, or in `store` of the recipe"
        ) from error


def default_store(address: str | None = None) -> Store:
    """The store at GROUNDWORK_STORE, a directory or the address of a bucket, else at `address`, else `store`
    in Dagster's home.
    """
    place, cache = history.store_place(address), history.dagster_home() / "cache"
    return Store(cache_of(place, cache) if "://" in place else Path(place).absolute())
