"""What a manifest describes: a published version, its parts, their files."""

import hashlib
import json
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import version as library_version
from pathlib import Path
from typing import Any

from pipeline.store.files import MANIFEST, Files, StoredFile, reports_on
from pipeline.store.fingerprint import combined, file_sha256, fingerprint
from pipeline.store.keys import Key
from trainer.system.durable import read_json, write_atomically

RECORDED_TOOLS = ("groundwork-lm", "numpy", "numba", "pyarrow", "tokenizers", "torch")
RECORDS = ".parts"  # in a version in the making: its finished parts
CHECKSUM = "checksum"  # of the rest of the manifest


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
    """The unit of work: one file for each table. Its `fingerprint` covers its inputs, code and parameters."""

    name: str
    fingerprint: str
    files: dict[str, File]
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def data_version(self) -> str:
        return combined(f"{table} {file.sha256}" for table, file in sorted(self.files.items()))

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Part":
        files = {table: File(**file) for table, file in record["files"].items()}
        return cls(record["name"], record["fingerprint"], files, record["counts"])


@dataclass(frozen=True)
class Version:
    """A published version of `key`."""

    key: Key
    path: Path
    manifest: dict[str, Any]
    store_files: Files = field(compare=False, repr=False)
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
        return sum(file.bytes for file in self.written)

    @cached_property
    def written(self) -> "list[File]":
        """Every file of the version."""
        return [file for part in self.parts for file in part.files.values()]

    def file(self, part: Part, table: str) -> StoredFile:
        """A file. Nobody else joins paths below a version."""
        return StoredFile(self.path / part.files[table].path, self.store_files)

    def named(self, part: str, table: str) -> StoredFile:
        """The file of the part with this name."""
        return self.file(next(one for one in self.parts if one.name == part), table)

    def only(self, table: str) -> StoredFile:
        """The file of a version that consists of one part."""
        (part,) = self.parts
        return self.file(part, table)

    def directory(self) -> Path:
        """The directory with all files of the version, for whoever opens them by names of their own."""
        self.opened()
        return self.path

    def opened(self) -> list[Path]:
        """The paths of all files, which are about to be opened."""
        paths = [self.path / file.path for file in self.written]
        self.store_files.fetch_all(paths)
        return paths

    def files(self, table: str) -> list[StoredFile]:
        return [self.file(part, table) for part in self.parts if table in part.files]

    def report(self, name: str, made_from: Any, make: Callable[[], Any]) -> Any:
        """The result of `make` as JSON, stored with the version and made again when `made_from` changes."""
        path, wanted = reports_on(self.path) / f"{name}.json", fingerprint(made_from)
        if not path.exists():
            self.store_files.pull(path)
        with suppress(OSError, ValueError, KeyError, TypeError):  # missing or damaged: made again
            stored = read_json(path)
            if stored["fingerprint"] == wanted:
                return stored["report"]
        content = json.dumps({"fingerprint": wanted, "report": make()})
        with suppress(OSError):  # of a store that may only be read, the report is made each time
            write_atomically(path, content)
            self.store_files.push(path)
        return json.loads(content)["report"]


def manifest_text(manifest: Mapping[str, Any]) -> str:
    """The manifest as it is stored, with its checksum."""
    return json.dumps({**manifest, CHECKSUM: _checksum(manifest)}, indent=1)


def read_version(key: Key, path: Path, files: Files) -> Version:
    """The version in a directory. Raises OSError for no manifest, ValueError if it is not as written."""
    manifest = read_json(path / MANIFEST)
    if not isinstance(manifest, dict):
        raise ValueError("it is not a JSON object")
    checksum = manifest.pop(CHECKSUM, None)
    if checksum != _checksum(manifest):
        raise ValueError("it was changed after it was written")
    version = Version(key, path, manifest, files)
    try:
        is_consistent = version.data_version == combined(part.data_version for part in version.parts)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it lacks something ({type(error).__name__}: {error})") from error
    if not is_consistent or not version.fingerprint.startswith(path.name):
        raise ValueError("it does not belong to these files")
    return version


def _checksum(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def total_counts(parts: Sequence[Part]) -> dict[str, int]:
    """Counts summed over parts, in order of first appearance."""
    totals: dict[str, int] = {}
    for part in parts:
        for name, number in part.counts.items():
            totals[name] = totals.get(name, 0) + number
    return totals


def breakdown(counts: Mapping[str, int], prefix: str) -> dict[str, int]:
    """The counts named `prefix/what` by what was counted, most frequent first."""
    start = f"{prefix}/"
    found = {name.removeprefix(start): count for name, count in counts.items() if name.startswith(start)}
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


@cache
def tool_versions() -> dict[str, str]:
    """The versions of Python and of the libraries that the manifest records."""
    return {"python": platform.python_version(), **{tool: library_version(tool) for tool in RECORDED_TOOLS}}
