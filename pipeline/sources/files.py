"""The user's own files: JSON lines, Parquet, CSV, text and Markdown, plain or compressed, named by path
or glob.
"""

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import pyarrow as pa
from pydantic import Field, field_validator

from pipeline.sources.documents import Batches
from pipeline.sources.formats.compression import COMPRESSED, BrokenCompressionError, blocks, format_of
from pipeline.sources.formats.csv_rows import read_csv
from pipeline.sources.formats.jsonl import not_an_array, read_jsonl
from pipeline.sources.formats.parquet_rows import read_parquet
from pipeline.sources.formats.rows import Columns, RowReader
from pipeline.sources.formats.streams import as_utf8
from pipeline.sources.formats.text_files import read_text
from pipeline.sources.listing import Files, Paths, listed, unit
from pipeline.sources.rejects import Reason, Rejects
from pipeline.sources.source import Unit
from pipeline.sources.source_file import Hash, SourceFile, size_of
from pipeline.store.fingerprint import combined, file_sha256

TEXT = (".txt", ".md")
JSON_LINES = (".jsonl", ".json", ".ndjson")
FORMATS = (*JSON_LINES, ".parquet", ".csv", *TEXT)


class FilesConfig(Columns, Paths):
    """Your own files, on this machine or behind URLs, in any mix of formats: JSON lines, Parquet, CSV, plain
    text and Markdown. All but Parquet may be compressed.
    """

    kind: Literal["files"] = Field("files", description="Selects this source.")
    encoding: str = Field(
        "utf-8",
        description="Character encoding of JSON lines, CSV and text files, by any name that Python knows. "
        "Parquet files are not affected.",
    )

    @field_validator("encoding")
    @classmethod
    def _known(cls, encoding: str) -> str:
        try:
            return codecs.lookup(encoding).name
        except LookupError as error:
            raise ValueError(f"{encoding!r} is not an encoding that Python knows") from error


@dataclass(frozen=True)
class FilesSource:
    """One unit per file, fingerprinted by content. With `max_documents`, one unit for all files, because what
    a file gives then depends on the files before it.

    With `keep_ids`, documents keep the ids that they bring, for files read without other corpora. `sha256`
    hashes a local file, or recalls its hash.
    """

    corpus: str
    config: FilesConfig
    keep_ids: bool = False
    sha256: Hash = file_sha256
    version: ClassVar[str] = "files-3"

    def units(self) -> list[Unit]:
        found = [unit(name, file, self.sha256) for name, file in self._files().items()]
        if self.config.max_documents is None:
            return found
        made_from = combined(f"{one.name} {one.fingerprint}" for one in found)
        return [Unit(f"first-{self.config.max_documents}", made_from, sum(one.bytes for one in found))]

    def read(self, unit: Unit, rejects: Rejects) -> Iterator[pa.RecordBatch]:
        return self._read(
            list(self._known) if self.config.max_documents is not None else [unit.name], rejects
        )

    def read_all(self, rejects: Rejects) -> Iterator[pa.RecordBatch]:
        """All files as one unit, in the order of their names. A second document with the same id is rejected,
        even from another file.
        """
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

    def _read_file(self, file: SourceFile, name: str, batches: Batches) -> Iterator[pa.RecordBatch]:
        plain, compression = format_of(name)
        try:
            file.check()
            if file.directory:
                batches.reject(
                    name,
                    None,
                    Reason.IS_A_DIRECTORY,
                    f"a directory; to read what is in it, write {name}/**/*.jsonl or the like",
                )
            elif file.size() == 0:
                batches.reject(name, None, Reason.EMPTY_FILE, "the file is empty")
            elif (plain, compression) == (".parquet", ""):
                yield from read_parquet(file, RowReader(name, self.config, batches, bytes=size_of(file)))
            elif plain in (*JSON_LINES, ".csv", *TEXT):
                content = as_utf8(blocks(file, compression), self.config.encoding)
                reader = RowReader(name, self.config, batches, bytes=size_of(file))
                yield from self._read_text_format(plain, content, reader)
            else:
                batches.reject(
                    name,
                    None,
                    Reason.UNSUPPORTED_FORMAT,
                    f"none of {', '.join(FORMATS)} (all but .parquet also {', '.join(COMPRESSED)})",
                    size_of(file),
                )
        except BrokenCompressionError as error:
            batches.reject(
                name,
                None,
                Reason.BROKEN_COMPRESSION,
                f"what comes before the break was read: {error}",
                max(0, size_of(file) - error.position),
            )
        except PermissionError:
            batches.reject(name, None, Reason.NO_PERMISSION, "no permission to read the file", size_of(file))
        except OSError as error:
            batches.reject(
                name, None, Reason.UNREADABLE, error.strerror or type(error).__name__, size_of(file)
            )

    def _read_text_format(
        self, plain: str, content: Iterator[bytes], reader: RowReader
    ) -> Iterator[pa.RecordBatch]:
        if plain == ".json":
            content = not_an_array(content, reader)
        if plain in JSON_LINES:
            return read_jsonl(content, reader)
        return (
            read_csv(content, reader) if plain == ".csv" else read_text(content, reader.file, reader.batches)
        )

    @cached_property
    def _known(self) -> Files:
        """Listed once per process, for all of its units."""
        return self._files()

    def _files(self) -> Files:
        return listed(self.corpus, self.config.patterns(), lambda name: format_of(name)[0] in FORMATS)
