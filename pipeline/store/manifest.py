"""What a manifest describes: a published version, its parts, their files."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline.store.fingerprint import combined, file_sha256, fingerprint
from trainer.system.durable import write_atomically

MANIFEST = "manifest.json"


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
    def is_whole(self) -> bool:
        """Whether every file exists with its full size."""
        return all(part.is_whole(self.path) for part in self.parts)

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


def total_counts(parts: Sequence[Part]) -> dict[str, int]:
    """Counts summed over parts, in order of first appearance."""
    totals: dict[str, int] = {}
    for part in parts:
        for name, count in part.counts.items():
            totals[name] = totals.get(name, 0) + count
    return totals
