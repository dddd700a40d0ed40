"""The store as one run of a recipe uses it: which version is meant, and the making of a new one.

A version is found by what made it, so any number of recipes and runs share a store. Which version a recipe
used last decides its raw documents where nothing looks at the source, its tokenizer, and what `gc` keeps.
"""

import errno
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from pipeline.store import keys, locks
from pipeline.store.atomic import writable
from pipeline.store.bucket.files import cache_of
from pipeline.store.damage import described, remedy
from pipeline.store.draft import Draft
from pipeline.store.files import Files
from pipeline.store.fingerprint import canonical_json
from pipeline.store.forgotten import forgotten
from pipeline.store.keys import DEDUP, Key
from pipeline.store.last_versions import LastVersions, RecipeName
from pipeline.store.manifest import Version
from pipeline.store.versions import RUNS_LOCK, NotMadeError, StoreError, Versions
from pipeline.store.work import Work
from trainer.system import paths

log = logging.getLogger(__name__)


class Wanted(Protocol):
    """Says which version of a key is wanted, as a recipe does."""

    @property
    def name(self) -> RecipeName: ...

    def find(self, store: "Store", key: Key) -> "Version | Work":
        """The version of `key` that follows from the recipe, or the work that would make it. Raises
        StoreError when a version that it is made from is missing.
        """
        ...

    def asset(self, key: Key) -> Key:
        """The key of the asset that makes `key`: mostly itself."""
        ...

    def job(self, key: Key) -> str:
        """A job that makes `key`."""
        ...


class Store(Versions):
    """A directory of versions as one run of a `recipe` uses it: the run continues with the versions that it
    made or reused, whatever other runs do to the store. `before_making` runs only before a version is made:
    a run that finds everything made does not pay for the check. Unless the store `records`, what the recipe
    used last stays as it is.

    | method                | which version                                  | who asks                      |
    |-----------------------|------------------------------------------------|-------------------------------|
    | `current(key)`        | of this run, else that the recipe means        | who reads what is made        |
    | `existing(work)`      | that this work would make, if it is there      | who makes nothing yet         |
    | `making(work)`        | as `existing`, else a draft to fill            | who makes what is missing     |
    | `last_used(key)`      | that the recipe used last, if still there *    | who says what changed since   |
    | `made_with(key, ...)` | with these settings, the last used first *     | who takes parts from it       |
    | `used_first(key)`     | all, those of this run and recipe first *      | raw and tokenizer, which stay |
    | `newest_first(key)`   | all, by age *                                  | who looks beyond one recipe   |
    | `open(key, name)`     | that in this directory *                       | who follows a lineage         |

    Each is complete: its manifest is sound. * Its files may be damaged: `damage` says which, `check` raises.
    The others are checked: a file that has changed on disk since it was hashed is read again. Without a
    recipe, as in tests, `current` takes the newest, unchecked.
    """

    def __init__(
        self,
        root: Path,
        recipe: Wanted | None = None,
        files: Files | None = None,
        before_making: Callable[[], None] = lambda: None,
        records: bool = True,
    ):
        super().__init__(root, files)
        self._recipe = recipe
        self._before_making = before_making
        self._records = records
        self._used: dict[Key, Version] = {}
        self._last = recipe and LastVersions(self.files, recipe.name)

    def __reduce__(self) -> tuple[type["Store"], tuple[Path, None, Files]]:
        """Worker processes write parts, for which they need no recipe. On another machine nothing at `root`
        says that the store is in a bucket.
        """
        return Store, (self.root, None, self.files)

    def current(self, key: Key) -> Version:
        """The version of `key` that this run made or reused, else the one that follows from the recipe.
        Raises StoreError when there is none.
        """
        if key not in self._used:
            found = self._recipe.find(self, key) if self._recipe else next(self.newest_first(key), None)
            if not isinstance(found, Version):
                raise self._missing(key, found)
            self._used[key] = found
        return self._used[key]

    def current_or_none(self, key: Key) -> Version | None:
        """As `current`; None where there is none."""
        with suppress(StoreError):
            return self.current(key)
        return None

    def data_versions(self, read: Iterable[Key]) -> dict[str, str]:
        """The data version of each key's `current` version: the inputs of a Work that reads them."""
        return {str(key): self.current(key).data_version for key in read}

    def _missing(self, key: Key, work: Work | None) -> StoreError:
        alike = (version for version in self.newest_first(key) if work and work.is_like(version.manifest))
        newest = next(alike, None)
        different = " and ".join(work.differences(newest.manifest)) if work and newest else ""
        damage = self._damage_at(work) if work else ""
        if newest and not (damage or different):
            damage = described(self.damage(newest))
        if damage:
            return StoreError(f"{damage}: {self._remedy(key)}")
        removed = newest and key == keys.raw(key.corpus) and forgotten(self.files, key.corpus).requests
        since = "since documents were removed from it (`forget`)" if removed else "yet"
        what = f"{key} has not been made {since}"
        if different:
            what = f"{key} has not been made for this recipe yet, the newest version has other {different}"
        asset = self._asset(key)
        job = self._recipe.job(key) if self._recipe else "pretrain"
        return NotMadeError(what, job, "it" if asset == key else asset)

    def _asset(self, key: Key) -> Key:
        return self._recipe.asset(key) if self._recipe else key

    def _remedy(self, key: Key) -> str:
        return remedy(self._asset(key), self._recipe.name.variant if self._recipe else "")

    def last_used(self, key: Key) -> Version | None:
        """The version that this recipe used last, if it is still there. Its files may be damaged."""
        return self._readable(key, self._last.get(key) if self._last else None)

    def used_by_recipe_file(self, key: Key) -> list[Path]:
        """The versions that this recipe, then others in its file used last. They may be gone."""
        return [self.directory(key) / name for name in self._last.of_file(key)] if self._last else []

    def in_use_since(self, key: Key) -> int:
        """Since when the recipe uses its version of `key`, in nanoseconds since 1970; 0 if it uses none."""
        return self._last.since(key) if self._last and self._last.get(key) else 0

    def made_with(self, key: Key, code_version: str, params: Any) -> Version | None:
        """The version made with these settings, from whatever inputs, that this run or this recipe used
        last, else the newest such version. Its files may be damaged.
        """
        settings = (code_version, json.loads(canonical_json(params)))
        for version in self.used_first(key):
            made_with = version.manifest["code_version"], version.manifest["params"]
            if made_with == settings:
                return version
        return None

    def used_first(self, key: Key) -> Iterator[Version]:
        """All versions of `key`, damaged ones too: those that this run and recipe used last, then by age."""
        yield from filter(None, (self._used.get(key), self.last_used(key)))
        yield from self.newest_first(key)

    def use(self, version: Version) -> None:
        """This run continues with the version, and the recipe is recorded to use it."""
        self.go_on_with(version)
        if self._last and self._records:
            self._last.use(version.key, version.path.name)

    def go_on_with(self, version: Version) -> None:
        """Continues with the version, as the run did that this one takes over from. The record of what the
        recipe used last stays as it is.
        """
        self._used[version.key] = version

    @contextmanager
    def making(self, work: Work) -> Iterator["Version | Draft"]:
        """Yields the version if it exists already, with which this run then continues, else a draft to fill
        and publish. A second process that makes the same version waits.
        """
        with writable(self.root), self.locked(work.key, work.name):
            version = self.existing(work)
            if version is None:
                self._begin(work)
            else:
                self.use(version)
            yield version or Draft(self, work)

    def _begin(self, work: Work) -> None:
        """Raises DamageError when what the work is made from is damaged."""
        self._before_making()
        if damage := self._damage_at(work):
            log.warning("%s: it is made again, and what is damaged is moved aside", damage)
        made_from = map(Key.from_path, work.inputs)
        inputs = {DEDUP if key.is_decided_part else key for key in made_from}
        self.check(*(self._used[key] for key in sorted(inputs & self._used.keys())))

    @contextmanager
    def in_progress(self) -> Iterator[None]:
        """While this lasts, nothing is removed from the store: a run may use what is not yet recorded."""
        with writable(self.root), locks.shared(self.root / RUNS_LOCK):
            if self._last:
                self._last.describe()
            yield


def check_place(root: Path) -> None:
    """Makes the directory of a store where there is none. Raises StoreError where that is not possible. A
    filled store that can only be read passes: a run that finds everything made in it succeeds.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        if not os.access(root, os.W_OK) and not any(root.iterdir()):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise StoreError(
            f"the store {root} cannot be written ({error.strerror}): name another directory in "
            f"{paths.STORE_VARIABLE}, or in `store` of the recipe"
        ) from error


def default_store(address: str | None = None) -> Store:
    """The store at GROUNDWORK_STORE (a directory, a bucket), else `address`, else in Dagster's home."""
    place = paths.store_place(address)
    is_bucket = "://" in place
    return Store(cache_of(place, paths.dagster_home() / "cache") if is_bucket else Path(place))
