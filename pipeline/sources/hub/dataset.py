"""Data sets of the Hugging Face hub, streamed file by file at one commit."""

import os
import re
import zlib
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from functools import partial
from gzip import BadGzipFile
from lzma import LZMAError
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pyarrow as pa
from pydantic import Field, field_validator
from zstandard import ZstdError

from pipeline.sources.documents import Batches
from pipeline.sources.formats.arrow_rows import (
    add_rows,
    no_text,
    parquet_schema,
    read_parquet,
    readable_columns,
)
from pipeline.sources.formats.compression import BrokenCompressionError, format_of
from pipeline.sources.formats.jsonl import read_jsonl
from pipeline.sources.formats.other_formats import XML
from pipeline.sources.formats.rows import Columns, RowReader
from pipeline.sources.formats.streams import blocks
from pipeline.sources.hub.joined_rows import JoinedRows
from pipeline.sources.source import OfflineError, Reason, Rejects, SourceError, Unit
from pipeline.sources.source_file import LocalFile, RemoteFile, SourceFile, info_of, is_busy, persistently
from pipeline.store import without_pandas
from pipeline.store.errors import first_line, refusal
from pipeline.store.fingerprint import combined

if TYPE_CHECKING:  # both take half a second and more to import
    from datasets import DatasetBuilder, IterableDataset

ROWS_AT_ONCE = 256
# As `datasets` writes them. It would read as many at once as the first row group has, perhaps none.
ROWS_OF_PARQUET = 1000
PATHS_AT_ONCE = 500
# raised by the formats and by decompressors for broken data, not for a broken connection
BROKEN = (
    *(ValueError, pa.ArrowException, EOFError, BadGzipFile, zlib.error, LZMAError, ZstdError),
    BrokenCompressionError,
)
JSON_LINES = (".jsonl", ".ndjson")
READ_HERE = {"JsonConfig": "lines-1", "ParquetConfig": "row-groups-1"}  # in fingerprints, by configuration

T = TypeVar("T")
Opening = tuple[Any, dict[str, Any]]  # the class of a DatasetBuilder and its state
NOT_SETTINGS = ("name", "version", "data_dir", "data_files", "description")  # of a builder's configuration


class HubConfig(Columns):
    """One split of a data set on the Hugging Face hub. The environment variable `HF_TOKEN` opens gated data
    sets.
    """

    kind: Literal["hub"] = "hub"
    """Selects this source."""
    name: str = Field(min_length=1)
    """Repository of the data set, as `owner/name`."""
    config: str | None = Field(None, min_length=1)
    """Configuration of the data set, such as `sample-10BT`. When not set, the data set's default."""
    split: str = Field("train", min_length=1)
    """Split of the data set to read."""
    revision: str | None = Field(None, min_length=1)
    """Branch, tag or commit to read. When not set, the newest commit; pin a commit for runs that must be
    repeatable.
    """
    document_start: str | None = None
    """For data sets with one line of a document per row: regular expression that the first line of each
    document matches entirely. When not set, each row is a document.
    """

    @field_validator("document_start")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"is not a regular expression: {error}") from error
        return pattern


@dataclass(frozen=True)
class HubSource:
    """One unit per data file, fingerprinted by the content hash of the hub. With `max_documents`, one unit
    for all files, because what a file gives then depends on the files before it.

    A unit is read at its own commit, even if the branch has moved since. Files are streamed in ranges of a
    few megabytes, and a range that breaks off is requested again, so the data set is held neither on disk
    nor in memory. With HF_HUB_OFFLINE, files come from the cache of the hub.
    """

    corpus: str
    config: HubConfig

    @property
    def version(self) -> str:
        return f"hub-5{self.config.version}"

    def units(self) -> list[Unit]:
        commit = self._commit()
        builder = self._builder(commit)
        files = {self._path(url, commit): url for url in self._urls(builder)}
        opening = _opening(builder)
        self._check_text(opening, *next(iter(files.items())))
        contents = self._contents(list(files), commit)
        settings = _settings(builder)
        if self.config.max_documents is not None:
            name = f"{self.config.split}-first-{self.config.max_documents}"
            made_from = combined([settings, *(f"{path} {contents[path][1]}" for path in files)])
            listed = tuple((path, (url, opening)) for path, url in files.items())
            return [Unit(name, made_from, sum(size for size, _ in contents.values()), commit, listed)]
        return [
            Unit(path, combined([settings, content]), size, commit, ((path, (url, opening)),))
            for path, url in sorted(files.items())
            for size, content in [contents[path]]
        ]

    def read(self, unit: Unit, rejects: Rejects) -> Iterator[pa.RecordBatch]:
        """Raises SourceError when the download breaks off: another attempt may succeed."""
        batches, start = Batches(self.corpus, rejects, self.config.max_documents), self.config.document_start
        for path, (url, opening) in unit.files:
            if batches.done:
                break
            # It is not known how far a file was read, so one that breaks off counts as lost.
            size = unit.bytes if path == unit.name else 0
            reader = (
                RowReader(path, self.config, batches, bytes=size)
                if start is None
                else JoinedRows(path, self.config, batches, re.compile(start), bytes=size)
            )
            try:
                if _is_read_by_line(path, opening):
                    yield from read_jsonl(blocks(_file(url), format_of(path)[1]), reader)
                elif _is_read_by_row_group(path, opening):
                    yield from read_parquet(_file(url), reader)
                else:
                    yield from _read(_stream(opening, self.config.split, url), reader)
            except StopIteration:
                pass  # raised by `datasets` for a file without a row
            except Exception as error:  # as in _commit
                if not _is_of_data(error):
                    why = f"broke off in {path}; run again to resume: {first_line(error)}"
                    raise self._error(why) from error
                why = f"what comes before the break was read: {first_line(error)}"
                batches.reject(path, None, Reason.BROKEN_DATA, why, reader.bytes)
            if isinstance(reader, JoinedRows):
                yield from reader.rest()
        yield from batches.rest()

    def _commit(self) -> str:
        from huggingface_hub import HfApi, errors

        if _offline():
            return self._cached(self.config.revision).name
        where = {"revision": self.config.revision, "token": token()}
        try:
            commit = _persistently(lambda: HfApi().dataset_info(self.config.name, **where).sha)
        except (errors.HfHubHTTPError, errors.HFValidationError) as error:
            at = f"at revision {self.config.revision!r} " if self.config.revision else ""
            raise self._failed(f"{at}cannot be found", error) from error
        except Exception as error:  # the errors of the HTTP library, whose classes change between versions
            what = f"cannot be found: the hub at {HfApi().endpoint} does not answer"
            raise self._failed(what, error) from error
        if commit is None:
            raise self._error("has no commit to read")
        return str(commit)

    def _cached(self, revision: str | None) -> Path:
        """The folder of a revision in the cache of the hub; its name is the commit."""
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

        try:
            where = {"repo_type": "dataset", "revision": revision, "local_files_only": True}
            return Path(snapshot_download(self.config.name, **where))
        except (LocalEntryNotFoundError, HFValidationError) as error:
            message = (
                "is not in the cache of the hub, and HF_HUB_OFFLINE is set; download it once while online: "
                "hf download --repo-type dataset"
            )
            raise OfflineError(str(self._error(f"{message} {self.config.name}"))) from error

    def _builder(self, commit: str) -> "DatasetBuilder":
        without_pandas.bring_in()
        from datasets import load_dataset_builder

        try:
            if _offline():
                return load_dataset_builder(str(self._cached(commit)), self.config.config)
            named = self.config.name, self.config.config
            return _persistently(lambda: load_dataset_builder(*named, revision=commit, token=token()))
        except Exception as error:  # missing files, unknown configs, scripts: each has its own class
            raise self._failed("cannot be opened", error) from error

    def _urls(self, builder: "DatasetBuilder") -> list[str]:
        """The data files of the split, in the order of their paths."""
        files = builder.config.data_files or {}
        if self.config.split not in files:
            raise self._error(f"has no split {self.config.split!r}; choose from {', '.join(map(str, files))}")
        return sorted(str(url) for url in files[self.config.split])

    def _check_text(self, opening: Opening, path: str, url: str) -> None:
        if opening[0].__name__ == "Xml":  # which `datasets` does not stream
            raise self._error(f"has no text to read: it is {XML}")
        try:
            if _is_read_by_row_group(path, opening):
                schema = parquet_schema(_file(url))
            else:
                features = _stream(opening, self.config.split, url).features
                schema = features and features.arrow_schema
        except Exception as error:  # as in _commit
            if isinstance(error, StopIteration) or _is_of_data(error):
                return  # reading will reject the file, or find it empty
            raise self._failed("cannot be read", error) from error
        refused = no_text(schema, self.config) if schema else None
        if refused:
            raise self._error(f"has no text to read: {refused[1]}; set `text_column` or `text_template`")

    def _path(self, url: str, commit: str) -> str:
        """`hf://datasets/org/name@commit/data/a.parquet` -> `data/a.parquet`. Raises SourceError for what is
        not in the repository: a card could name the files of this machine.
        """
        root = re.escape(str(self._cached(commit))) if _offline() else "hf://datasets/[^@]+@[^/]+"
        inside = re.fullmatch(f"(?:.*::)?{root}/(.+)", url)
        if inside is None or ".." in inside[1].split("/"):
            raise self._error(f"is not read: its card names {url}, which is not in its repository")
        return inside[1]

    def _contents(self, paths: list[str], commit: str) -> dict[str, tuple[int, str]]:
        """Each file's bytes and content hash on the hub; elsewhere 0 bytes and the commit for a hash."""
        from huggingface_hub import HfApi

        if _offline():
            # the links of the cache lead to files named by their hash
            cached = self._cached(commit)
            blobs = ((path, (cached / path).resolve()) for path in paths)
            return {path: (blob.stat().st_size, blob.name) for path, blob in blobs}
        contents = dict.fromkeys(paths, (0, commit))
        try:
            for start in range(0, len(paths), PATHS_AT_ONCE):
                some = paths[start : start + PATHS_AT_ONCE]
                where = {"repo_type": "dataset", "revision": commit, "token": token()}
                infos = partial(HfApi().get_paths_info, self.config.name, some, **where)
                for info in _persistently(infos):
                    stored = getattr(info, "lfs", None)
                    content = stored.sha256 if stored else getattr(info, "blob_id", commit)
                    contents[info.path] = getattr(info, "size", 0), content
        except Exception as error:  # as in _commit
            raise self._failed("cannot be listed", error) from error
        return contents

    def _failed(self, what: str, error: Exception) -> SourceError:
        return self._error(f"{what}: {refusal(error).partition(' Example of usage')[0]}")

    def _error(self, what: str) -> SourceError:
        return SourceError(f"corpus {self.corpus!r}: data set {self.config.name!r} {what}")


def _opening(builder: "DatasetBuilder") -> Opening:
    """What `_stream` needs of a builder, small enough to travel with each task. The lists of files, the
    card's unused configurations, which the builder's class holds, and the token are left out.
    """
    config = replace(builder.config, data_files=None)
    return type(builder).__base__, {**vars(builder), "config": config, "token": False}


def _stream(opening: Opening, split: str, url: str) -> "IterableDataset":
    """One data file, opened with all the settings of the data set's card. Asks the hub for that file only.

    `datasets` notes the columns of a file in the state, and reads no file with others by that state: a copy.
    """
    from datasets.data_files import DataFilesDict, DataFilesList

    kind, state = opening
    files = DataFilesDict({split: DataFilesList([url], [()])})
    config = replace(state["config"], data_files=files)
    if kind.__name__ == "Parquet" and config.batch_size is None:
        config.batch_size = ROWS_OF_PARQUET
    builder = kind.__new__(kind)
    builder.__setstate__({**state, "info": deepcopy(state["info"]), "config": config, "token": token()})
    return builder.as_streaming_dataset(split=split)


def _is_of_data(error: Exception) -> bool:
    """Whether the data are broken, not the connection. Of a table that was cut, Arrow raises OSError itself,
    without a number; errors of connections and disks have a class or a number of their own.
    """
    return isinstance(error, BROKEN) or (type(error) is OSError and error.errno is None)


def _is_read_by_line(path: str, opening: Opening) -> bool:
    """Whether a file holds JSON lines: `datasets` would give up such a file at the first broken line."""
    kind, settings = opening[0].__name__, opening[1]["config"]
    by_line = kind == "Json" and settings.field is None and settings.encoding == "utf-8"
    return by_line and format_of(path)[0] in JSON_LINES


def _is_read_by_row_group(path: str, opening: Opening) -> bool:
    """Whether a file is Parquet as it is: `datasets` would give up a file for a column that it does not know,
    and for a broken row group.
    """
    kind, settings = opening[0].__name__, opening[1]["config"]
    whole = kind == "Parquet" and settings.columns is None and settings.filters is None
    return whole and format_of(path) == (".parquet", "")


def _file(url: str) -> SourceFile:
    from fsspec.core import url_to_fs

    if "://" not in url:
        return LocalFile(Path(url))
    filesystem, path = url_to_fs(url, **({"token": token()} if url.startswith("hf://") else {}))
    return RemoteFile(filesystem, path, info_of(filesystem, path))


def _read(stream: "IterableDataset", reader: RowReader) -> Iterator[pa.RecordBatch]:
    number = 1
    for table in stream.with_format("arrow").iter(batch_size=ROWS_AT_ONCE):
        if refused := no_text(table.schema, reader.columns):
            reader.reject(number, *refused, reader.bytes)
            return
        for batch in (
            table.select(readable_columns(table.schema, reader.columns)).combine_chunks().to_batches()
        ):
            yield from add_rows(number, batch, reader)
            number += batch.num_rows
        if reader.batches.done:
            return


def _persistently(ask: Callable[[], T]) -> T:
    """What the hub answers, once it is no longer busy. It answers 429 to those who ask often."""
    return persistently(ask, is_final=lambda error: not is_busy(error))


def _settings(builder: "DatasetBuilder") -> str:
    """The settings of the data set's card for reading its files."""
    config = builder.config
    names = [field.name for field in fields(config) if field.name not in NOT_SETTINGS]
    kind = type(config).__name__
    here = [READ_HERE[kind]] if kind in READ_HERE else []
    return " ".join([kind, *here, *(f"{name}={getattr(config, name)!r}" for name in names)])


def _offline() -> bool:
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def token() -> str | Literal[False]:
    """The token in the environment. A token saved by a login on this machine is never used. Raises
    SourceError, which does not show it, for what cannot be sent.
    """
    found = os.environ.get("HF_TOKEN", "").strip()
    if not re.fullmatch("[!-~]*", found):
        raise SourceError("HF_TOKEN holds characters that no token has: copy the token again")
    return found or False
