"""A version in the making: its finished parts survive a kill, and publishing makes all of them visible."""

import json
import logging
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from pipeline.store.file_hashes import FileHashes
from pipeline.store.files import Files, Scratch, StoredFile
from pipeline.store.fingerprint import canonical_json, combined
from pipeline.store.keys import Key
from pipeline.store.manifest import (
    RECORDS,
    File,
    Part,
    Version,
    manifest_text,
    read_version,
    tool_versions,
    total_counts,
)
from pipeline.store.work import Work
from trainer.system.durable import read_json, write_atomically

log = logging.getLogger(__name__)


class DraftStore(Protocol):
    """What a draft needs of its store."""

    files: Files

    @property
    def hashes(self) -> FileHashes: ...

    def directory(self, key: Key) -> Path: ...

    def made_with(self, key: Key, code_version: str, params: Any) -> Version | None: ...

    def use(self, version: Version) -> None: ...


class Draft:
    """A version in the making. A part is whole or absent; `publish` makes it visible atomically."""

    def __init__(self, store: DraftStore, work: Work):
        self.store = store
        self.work = work
        self.started = time.time()
        self._version = store.directory(work.key) / work.name
        self.path = store.files.begin(self._version)

    def file(self, part: Part, table: str) -> StoredFile:
        """A file of a finished part."""
        return StoredFile(self.path / part.files[table].path, self.store.files)

    def finished(self, name: str, part_fingerprint: str) -> Part | None:
        """The part with this name and fingerprint, if an interrupted attempt or the version before has it;
        else None. A part of the version before is hard-linked.
        """
        record = self._record(name)
        with suppress(OSError, ValueError, KeyError, TypeError):  # there is none, or a damaged one
            part = Part.from_json(read_json(record))
            if part.fingerprint == part_fingerprint and self._is_sound(part, self.path):
                return part
        previous = self._previous.get(part_fingerprint)
        if previous is None or previous[1].name != name or not self._is_sound(previous[1], previous[0].path):
            return None
        version, part = previous
        for table, file in part.files.items():
            source, target = version.file(part, table).path, self.file(part, table).path
            if not self.store.files.link(source, target, file.bytes):
                return None
            # A new link changes the ctime of the file.
            linked = {path: file.sha256 for path in (source, target) if path.exists()}
            self.store.hashes.remember(linked)
        self.keep(part)
        return part

    def finished_under_any_name(self, part_fingerprint: str) -> Part | None:
        """As `finished`, for a part whose name is known only when it is made."""
        name = self._names.get(part_fingerprint)
        return self.finished(name, part_fingerprint) if name else None

    def leave_out(self, unwanted: Callable[[Version, Part], bool | None]) -> None:
        """Uses those parts of the version before that are `unwanted` no more."""
        self._previous = {
            made_from: found for made_from, found in self._previous.items() if not unwanted(*found)
        }

    def write(self, name: str, content: str | bytes) -> File:
        """Writes a small file of the version."""
        write_atomically(path := self.path / name, content)
        return File.of(path, self.path)

    def put(self, part: Part) -> None:
        """As `keep`, for a part that this process wrote."""
        self.store.files.put_files(self.path, {file.path: file.sha256 for file in part.files.values()})
        self.keep(part)

    def keep(self, part: Part) -> None:
        """Records a finished part, whose files were put, so that it survives a kill."""
        write_atomically(self._record(part.name), json.dumps(asdict(part)))
        self.store.files.push(self._record(part.name))

    def forget(self, part: Part) -> None:
        """Lets the next attempt make this part again."""
        self._record(part.name).unlink(missing_ok=True)
        self.store.files.unshare(self._record(part.name))

    def publish(self, parts: Sequence[Part], counts: dict[str, int] | None = None) -> Version:
        """Writes the manifest and renames the directory to its final name. The run continues with it. The
        parts are in the order of their documents.
        """
        manifest = {
            "key": str(self.work.key),
            "fingerprint": self.work.fingerprint,
            "data_version": combined(part.data_version for part in parts),
            "code_version": self.work.code_version,
            "params": json.loads(canonical_json(self.work.params)),
            "inputs": self.work.inputs,
            "counts": counts if counts is not None else total_counts(parts),
            "parts": [asdict(part) for part in parts],
            "seconds": round(time.time() - self.started, 3),
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "tools": tool_versions(),
        }
        self._remove_strays(parts)
        files = [file for part in parts for file in part.files.values()]
        self.store.files.put_missing(self.path, {file.path: (file.bytes, file.sha256) for file in files})
        version = Version(self.work.key, self._version, manifest, self.store.files)
        if not self.store.files.publish(self.path, self._version, manifest_text(manifest)):
            log.info("%s: another run has published it meanwhile, and this run uses that", self.work.key)
            version = replace(read_version(self.work.key, self._version, self.store.files), reused=True)
        # Deleted only now, so that a kill just before loses no part.
        self.store.files.unshare(self._version / RECORDS)
        shutil.rmtree(self._version / RECORDS, ignore_errors=True)
        written = {version.path / file.path: file.sha256 for file in version.written}
        self.store.hashes.remember({path: sha256 for path, sha256 in written.items() if path.exists()})
        self.store.use(version)
        return version

    @contextmanager
    def scratch(self, apart: bool) -> Iterator[Scratch]:
        """A directory for what this work needs for a while. `apart`: the tasks may run on other machines."""
        for left in self.path.glob("scratch-*"):  # by an attempt that was killed
            shutil.rmtree(left)
            if apart:
                self.store.files.unshare(left)
        with TemporaryDirectory(prefix="scratch-", dir=self.path) as name:
            try:
                yield Scratch(Path(name), self.store.files, apart)
            finally:
                if apart:
                    self.store.files.unshare(Path(name))

    @cached_property
    def _previous(self) -> dict[str, tuple[Version, Part]]:
        version = self.store.made_with(self.work.key, self.work.code_version, self.work.params)
        return {part.fingerprint: (version, part) for part in version.parts} if version else {}

    @cached_property
    def _names(self) -> dict[str, str]:
        """The names of the parts that `finished` may find, by fingerprint."""
        names = {made_from: part.name for made_from, (_, part) in self._previous.items()}
        for record in self._record("*").parent.glob("*.json"):
            with suppress(OSError, ValueError, KeyError, TypeError):  # a damaged one
                part = Part.from_json(read_json(record))
                names[part.fingerprint] = part.name
        return names

    def _is_sound(self, part: Part, directory: Path) -> bool:
        """Whether the files of a part hold what was written. Reads those that were never hashed."""
        return all(self._holds(directory, file) for file in part.files.values())

    def _holds(self, directory: Path, file: File) -> bool:
        path = directory / file.path
        there = self.store.files.holds(path, file.sha256)
        if there is None:
            return file.is_whole(directory) and self.store.hashes.sha256(path) == file.sha256
        return there

    def _record(self, name: str) -> Path:
        return self.path / RECORDS / f"{name}.json"

    def _remove_strays(self, parts: Sequence[Part]) -> None:
        listed = {file.path for part in parts for file in part.files.values()}
        for path in list(self.path.rglob("*")):
            inside = path.relative_to(self.path)
            if path.is_file() and inside.parts[0] != RECORDS and inside.as_posix() not in listed:
                path.unlink()
