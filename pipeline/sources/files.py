"""The user's own files: JSON lines, Parquet, CSV, text and Markdown, plain or compressed, named by path or glob."""

import glob
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

import pyarrow as pa
from pydantic import Field, PrivateAttr

from pipeline.fingerprint import combined, file_sha256
from pipeline.sources.compression import COMPRESSED, BrokenCompressionError
from pipeline.sources.csv_rows import read_csv
from pipeline.sources.documents import Batches, Reason, Rejects, SourceError, Unit
from pipeline.sources.jsonl import read_jsonl
from pipeline.sources.parquet_rows import read_parquet
from pipeline.sources.rows import Columns, RowReader
from pipeline.sources.text_files import read_text

TEXT = (".txt", ".md")
JSON_LINES = (".jsonl", ".json", ".ndjson")
FORMATS = (*JSON_LINES, ".parquet", ".csv", *TEXT)


class FilesConfig(Columns):
    """Local files. `paths` are paths or globs (`**` crosses directories); all formats may be mixed.

    With `max_documents`, the first so many documents of the files in the order of their names.
    """

    kind: Literal["files"] = "files"
    paths: tuple[str, ...] = Field(min_length=1)
    _directory: Path = PrivateAttr(default_factory=Path)  # private: where a corpus lies is no part of what it is

    def anchored(self, directory: Path) -> "FilesConfig":
        """The same, with relative paths starting at `directory` instead of the working directory."""
        anchored = self.model_copy()
        anchored._directory = directory
        return anchored

    def patterns(self) -> list[str]:
        """The paths as they are on this machine."""
        return [str(self._directory / Path(path).expanduser()) for path in self.paths]


@dataclass(frozen=True)
class FilesSource:
    """One unit per file, fingerprinted by content; one unit for all when `max_documents` makes each depend on those before.

    `keep_ids` is for who reads the files alone, with no other corpus beside them: documents keep the ids that they bring.
    """

    corpus: str
    config: FilesConfig
    keep_ids: bool = False
    version: ClassVar[str] = "files-1"

    def units(self) -> list[Unit]:
        found = [_unit(name, path) for name, path in self._files().items()]
        if self.config.max_documents is None:
            return found
        made_from = combined(f"{unit.name} {unit.fingerprint}" for unit in found)
        return [Unit(f"first-{self.config.max_documents}", made_from, sum(unit.bytes for unit in found))]

    def read(self, unit: Unit, rejects: Rejects) -> Iterator[pa.RecordBatch]:
        return self._read(list(self._known) if self.config.max_documents is not None else [unit.name], rejects)

    def read_all(self, rejects: Rejects) -> Iterator[pa.RecordBatch]:
        """All files as one unit, in the order of their names: of documents with one id, the later is set aside whatever its file."""
        return self._read(list(self._known), rejects)

    def _read(self, names: list[str], rejects: Rejects) -> Iterator[pa.RecordBatch]:
        files = self._known
        batches = Batches(self.corpus, rejects, self.config.max_documents, self.keep_ids)
        for name in names:
            if name not in files:
                batches.reject(name, None, Reason.UNREADABLE, "the file is gone")
            elif not batches.done:
                yield from self._read_file(files[name], name, batches)
        yield from batches.rest()

    def _read_file(self, path: Path, name: str, batches: Batches) -> Iterator[pa.RecordBatch]:
        reader = RowReader(name, self.config, batches)
        plain, compression = _format(path)
        try:
            if path.is_dir():
                batches.reject(name, None, Reason.IS_A_DIRECTORY, f"a directory; to read what is in it, write {path.name}/**/*.jsonl or the like")
            elif path.stat().st_size == 0:
                batches.reject(name, None, Reason.EMPTY_FILE, "the file is empty")
            elif plain in JSON_LINES:
                yield from read_jsonl(path, reader)
            elif plain == ".csv":
                yield from read_csv(path, reader)
            elif plain in TEXT:
                yield from read_text(path, name, batches)
            elif (plain, compression) == (".parquet", ""):
                yield from read_parquet(path, reader)
            else:
                batches.reject(name, None, Reason.UNSUPPORTED_FORMAT, f"none of {', '.join(FORMATS)} (all but .parquet also {', '.join(COMPRESSED)})")
        except BrokenCompressionError as error:
            batches.reject(name, None, Reason.BROKEN_COMPRESSION, f"what comes before the break was read: {error}")
        except PermissionError:
            batches.reject(name, None, Reason.NO_PERMISSION, "no permission to read the file")
        except OSError as error:
            batches.reject(name, None, Reason.UNREADABLE, error.strerror or type(error).__name__)

    @cached_property
    def _known(self) -> dict[str, Path]:
        """Listed once for all units that one process reads."""
        return self._files()

    def _files(self) -> dict[str, Path]:
        """The files by name, in the order of their names. A name is the path below what is fixed in its pattern, so no machine is in it."""
        files: dict[str, Path] = {}
        for pattern in self.config.patterns():
            found = _matches(pattern)
            if not found:
                raise SourceError(f"corpus {self.corpus!r}: no file matches {pattern!r}")
            for name, path in found.items():
                other = files.setdefault(name, path)
                if other is not path and other.resolve() != path.resolve():
                    raise SourceError(f"corpus {self.corpus!r}: {other} and {path} are both named {name!r}; give one glob over a common directory")
        return dict(sorted(files.items()))


def _matches(pattern: str) -> dict[str, Path]:
    expanded = Path(pattern)
    if expanded.exists():
        return {expanded.name: expanded}
    if not glob.has_magic(pattern):
        return {}
    fixed = Path(*_before_magic(expanded.parts))
    paths = [Path(found) for found in sorted(glob.glob(str(expanded), recursive=True))]  # noqa: PTH207 - Path.glob finds hidden files too
    return {path.relative_to(fixed).as_posix(): path for path in paths if not path.is_dir() or _format(path)[0] in FORMATS}


def _before_magic(parts: tuple[str, ...]) -> list[str]:
    magic = next(index for index, part in enumerate(parts) if glob.has_magic(part))
    return list(parts[:magic])


def _format(path: Path) -> tuple[str, str]:
    """The suffixes for format and compression: ('.jsonl', '.gz'), ('.txt', '')."""
    suffix = path.suffix.lower()
    return (path.with_suffix("").suffix.lower(), suffix) if suffix in COMPRESSED else (suffix, "")


def _unit(name: str, path: Path) -> Unit:
    """What cannot be read is a unit too, so that reading names it."""
    try:
        return Unit(name, file_sha256(path), path.stat().st_size)
    except OSError as error:
        return Unit(name, f"unreadable: {error.strerror}", 0)
