"""Versions on disk: fingerprints, manifests, atomic publishing.

<root>/<key>/<fingerprint>/manifest.json    written last: a directory with this name is complete
<root>/<key>/<fingerprint>/<table>/<part>   the files that the manifest lists
<root>/<key>/.<fingerprint>.reports/        reports made later, outside of the version, which never changes
<root>/<key>/.<fingerprint>.partial/        work in progress; its finished parts survive a kill
<root>/<key>/current                        the fingerprint of the version in use
"""

import fcntl
import json
import logging
import os
import platform
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from importlib.metadata import version as library_version
from pathlib import Path
from typing import IO, Any

from pipeline.store.errors import PipelineError
from pipeline.store.fingerprint import canonical_json, combined, file_sha256, fingerprint
from trainer.system.durable import rename_directory, write_atomically

log = logging.getLogger(__name__)

KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
STORE_VARIABLE = "GROUNDWORK_STORE"
NAME_LENGTH = 16  # hex digits of a fingerprint in a directory's name
RECORDED_TOOLS = ("groundwork", "numpy", "numba", "pyarrow", "tokenizers", "torch")


class StoreError(PipelineError):
    """Something expected in the store is missing or incomplete."""


@dataclass(frozen=True)
class File:
    """One published file: its path inside the version, size in bytes, sha256."""

    path: str
    bytes: int
    sha256: str

    @classmethod
    def of(cls, path: Path, directory: Path) -> "File":
        return cls(path.relative_to(directory).as_posix(), path.stat().st_size, file_sha256(path))

    def is_whole(self, directory: Path) -> bool:
        """Whether the file exists with its full size."""
        path = directory / self.path
        return path.exists() and path.stat().st_size == self.bytes


@dataclass(frozen=True)
class Part:
    """The unit of work: one file per table. `fingerprint`: of its inputs, code and parameters."""

    name: str
    fingerprint: str
    files: dict[str, File]
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def data_version(self) -> str:
        return combined(f"{table} {file.sha256}" for table, file in sorted(self.files.items()))

    def is_whole(self, directory: Path) -> bool:
        return all(file.is_whole(directory) for file in self.files.values())

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Part":
        files = {table: File(**file) for table, file in record["files"].items()}
        return cls(record["name"], record["fingerprint"], files, record["counts"])


@dataclass(frozen=True)
class Version:
    """A published version of `key`."""

    key: str
    path: Path
    manifest: dict[str, Any]
    reused: bool = False

    @property
    def fingerprint(self) -> str:
        return self.manifest["fingerprint"]

    @property
    def data_version(self) -> str:
        """sha256 over the content hashes of the parts: the same bytes have the same data version."""
        return self.manifest["data_version"]

    @property
    def counts(self) -> dict[str, int]:
        return self.manifest["counts"]

    @property
    def seconds(self) -> float:
        """How long making it took."""
        return self.manifest["seconds"]

    @cached_property
    def parts(self) -> list[Part]:
        return [Part.from_json(record) for record in self.manifest["parts"]]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for part in self.parts for file in part.files.values())

    def file(self, part: Part, table: str) -> Path:
        return self.path / part.files[table].path

    def files(self, table: str) -> list[Path]:
        return [self.file(part, table) for part in self.parts if table in part.files]

    def report(self, name: str, made_from: Any, make: Callable[[], Any]) -> Any:
        """The result of `make`, through JSON. It is stored with the version and made again when `made_from`
        changes.
        """
        path, wanted = reports_on(self.path) / f"{name}.json", fingerprint(made_from)
        if path.exists():
            stored = json.loads(path.read_text(encoding="utf-8"))
            if stored["fingerprint"] == wanted:
                return stored["report"]
        content = json.dumps({"fingerprint": wanted, "report": make()})
        write_atomically(path, content)
        return json.loads(content)["report"]


def reports_on(version: Path) -> Path:
    """The directory of the reports on the version at this path."""
    return version.with_name(f".{version.name}.reports")


@dataclass(frozen=True)
class Work:
    """What to make, and from what. Its fingerprint is the name of the version."""

    key: str
    code_version: str
    params: Any
    inputs: dict[str, str]  # name -> data version

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self._recipe | {"inputs": self.inputs})

    def part_fingerprint(self, inputs: Sequence[str]) -> str:
        """The fingerprint of a part, by which an unchanged part is recognised in an older version."""
        return fingerprint(self._recipe | {"part_inputs": list(inputs)})

    @property
    def _recipe(self) -> dict[str, Any]:
        return {"stage": self.key, "code_version": self.code_version, "params": self.params}


class Store:
    """A directory of versions. Readers see a complete version or none."""

    def __init__(self, root: Path):
        self.root = root

    def directory(self, key: str) -> Path:
        if not KEY.fullmatch(key):
            raise StoreError(
                f"{key!r} is not a valid key: use letters, digits, '_', '-' and '.' between single slashes"
            )
        return self.root / key

    def has(self, key: str) -> bool:
        """Whether `key` has a version in use."""
        return (self.directory(key) / "current").exists()

    def current(self, key: str) -> Version:
        """The version in use. Raises StoreError when the asset was never made."""
        if not self.has(key):
            raise StoreError(f"{key} has not been made yet: materialize it first")
        return self.open(key, (self.directory(key) / "current").read_text().strip())

    def before(self, version: Version) -> Version | None:
        """The last version of the same key that was made before this one and is still on disk."""
        manifests = self.directory(version.key).glob("[!.]*/manifest.json")
        made = {path.parent.name: path.stat().st_mtime_ns for path in manifests}
        earlier = [name for name, when in made.items() if when < made[version.path.name]]
        return self.open(version.key, max(earlier, key=made.__getitem__)) if earlier else None

    def in_use_since(self, key: str) -> int:
        """When the version in use was taken into use, in nanoseconds since 1970. It may be much older."""
        return (self.directory(key) / "current").stat().st_mtime_ns

    def find(self, work: Work) -> Version | None:
        """The version that this work would make, if it exists with every file at its full size."""
        path = self.directory(work.key) / work.fingerprint[:NAME_LENGTH]
        if not (path / "manifest.json").exists():
            return None
        version = self.open(work.key, path.name, reused=True)
        return version if all(part.is_whole(path) for part in version.parts) else None

    def reuse(self, work: Work) -> Version | None:
        """As `find`, and makes the version the one in use."""
        version = self.find(work)
        if version:
            self._point(version)
        return version

    @contextmanager
    def making(self, work: Work) -> Iterator["Version | Draft"]:
        """Yields the version if it exists already, else a draft to fill and publish.

        Takes the lock of the key: a second process waits. The lock ends with the process that holds it.
        """
        directory = self.directory(work.key)
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / ".lock").open("w") as lock:
            _wait_for(lock, work.key)
            yield self.reuse(work) or Draft(self, work)

    @contextmanager
    def idle(self, key: str) -> Iterator[bool]:
        """Yields whether no process is making `key`. If so, none can start before this exits."""
        with (self.directory(key) / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def open(self, key: str, name: str, reused: bool = False) -> Version:
        """The version in the directory `name` of `key`. Raises StoreError when it is incomplete."""
        path = self.directory(key) / name
        try:
            manifest = json.loads((path / "manifest.json").read_text())
        except (OSError, json.JSONDecodeError) as error:
            raise StoreError(
                f"{path} is not a complete version ({error}): delete it and materialize {key} again"
            ) from error
        return Version(key, path, manifest, reused)

    def _point(self, version: Version) -> None:
        pointer = self.directory(version.key) / "current"
        if not pointer.exists() or pointer.read_text().strip() != version.path.name:
            write_atomically(pointer, version.path.name + "\n")


def default_store() -> Store:
    """The store at GROUNDWORK_STORE, else `store` in Dagster's home."""
    home = Path(os.environ.get("DAGSTER_HOME") or Path(__file__).parents[2] / "dagster_home")
    return Store(Path(os.environ.get(STORE_VARIABLE) or home / "store").absolute())


class Draft:
    """A version in the making. A part is complete or absent at any moment; `publish` makes the version
    visible atomically.
    """

    def __init__(self, store: Store, work: Work):
        self.store = store
        self.work = work
        self.started = time.time()
        self.path = store.directory(work.key) / f".{work.fingerprint[:NAME_LENGTH]}.partial"
        self.path.mkdir(exist_ok=True)

    def finished(self, name: str, part_fingerprint: str) -> Part | None:
        """The part if an interrupted attempt finished it, or if the version in use holds the same part, which
        is then hard-linked.
        """
        record = self._record(name)
        if record.exists():
            part = Part.from_json(json.loads(record.read_text()))
            if part.fingerprint == part_fingerprint and part.is_whole(self.path):
                return part
        previous = self._previous.get(part_fingerprint)
        if previous is None or previous[1].name != name:
            return None
        version, part = previous
        for table in part.files:
            target = self.path / part.files[table].path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            os.link(version.file(part, table), target)
        self.keep(part)
        return part

    def keep(self, part: Part) -> None:
        """Records a finished part, so that it survives a kill."""
        write_atomically(self._record(part.name), json.dumps(asdict(part)))

    def forget(self, part: Part) -> None:
        """The next attempt makes this part again."""
        self._record(part.name).unlink(missing_ok=True)

    def publish(self, parts: Sequence[Part], counts: dict[str, int] | None = None) -> Version:
        """Writes the manifest, renames the directory to its final name and makes it the version in use."""
        ordered = sorted(parts, key=lambda part: part.name)
        manifest = {
            "key": self.work.key,
            "fingerprint": self.work.fingerprint,
            "data_version": combined(part.data_version for part in ordered),
            "code_version": self.work.code_version,
            "params": json.loads(canonical_json(self.work.params)),
            "inputs": self.work.inputs,
            "counts": counts if counts is not None else total_counts(ordered),
            "parts": [asdict(part) for part in ordered],
            "seconds": round(time.time() - self.started, 3),
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "tools": _tool_versions(),
        }
        self._remove_strays(ordered)
        write_atomically(self.path / "manifest.json", json.dumps(manifest, indent=1))
        final = self.path.with_name(self.work.fingerprint[:NAME_LENGTH])
        if final.exists():  # `find` rejected it: a file was deleted or truncated
            shutil.rmtree(final)
            shutil.rmtree(reports_on(final), ignore_errors=True)
        rename_directory(self.path, final)
        # Deleted only now, so that a kill just before the rename loses no part.
        shutil.rmtree(final / ".parts", ignore_errors=True)
        version = Version(self.work.key, final, manifest)
        self.store._point(version)
        return version

    @cached_property
    def _previous(self) -> dict[str, tuple[Version, Part]]:
        if not self.store.has(self.work.key):
            return {}
        version = self.store.current(self.work.key)
        return {part.fingerprint: (version, part) for part in version.parts if part.is_whole(version.path)}

    def _record(self, name: str) -> Path:
        return self.path / ".parts" / f"{name}.json"

    def _remove_strays(self, parts: Sequence[Part]) -> None:
        listed = {file.path for part in parts for file in part.files.values()}
        for path in list(self.path.rglob("*")):
            inside = path.relative_to(self.path)
            if path.is_file() and inside.parts[0] != ".parts" and inside.as_posix() not in listed:
                path.unlink()


def _wait_for(lock: IO[str], key: str) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        log.info("%s: another process is making it, waiting for that process", key)
        fcntl.flock(lock, fcntl.LOCK_EX)


@cache
def _tool_versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{tool: library_version(tool) for tool in RECORDED_TOOLS}}


def total_counts(parts: Sequence[Part]) -> dict[str, int]:
    """Counts summed over parts, in order of first appearance."""
    totals: dict[str, int] = {}
    for part in parts:
        for name, count in part.counts.items():
            totals[name] = totals.get(name, 0) + count
    return totals
