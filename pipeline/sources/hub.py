"""Data sets of the Hugging Face hub, streamed file by file at one commit."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from pipeline.fingerprint import combined
from pipeline.sources.arrow_rows import add_rows, no_text, readable_columns
from pipeline.sources.documents import Batches, Reason, Rejects, SourceError, Unit
from pipeline.sources.rows import Columns, RowReader

if TYPE_CHECKING:  # both take half a second and more to import
    from datasets import DatasetBuilder, IterableDataset

ROWS_AT_ONCE = 256
PATHS_AT_ONCE = 500
BROKEN = (ValueError, pa.ArrowException)  # what the formats raise for broken data, as against a broken connection


class HubConfig(Columns):
    """One split of a data set. `revision` is a branch, tag or commit; without it, the newest commit. `HF_TOKEN` opens gated data sets."""

    kind: Literal["hub"] = "hub"
    name: str = Field(min_length=1)
    config: str | None = Field(None, min_length=1)
    split: str = Field("train", min_length=1)
    revision: str | None = Field(None, min_length=1)


@dataclass(frozen=True)
class HubSource:
    """One unit per data file, fingerprinted by commit and path; one for all when `max_documents` makes each depend on those before.

    A unit is read at the commit in its fingerprint, whatever the branch has become meanwhile.
    """

    corpus: str
    config: HubConfig
    version: ClassVar[str] = "hub-1"

    def units(self) -> list[Unit]:
        commit = self._commit()
        builder = self._builder(commit)
        files = {_path(url): url for url in self._urls(builder)}
        self._check_text(builder, next(iter(files.values())))
        sizes = self._sizes(list(files), commit)
        if self.config.max_documents is not None:
            name = f"{self.config.split}-first-{self.config.max_documents}"
            return [Unit(name, f"{commit}:{combined(files)}", sum(sizes.values()))]
        return [Unit(path, f"{commit}:{path}", sizes[path]) for path in sorted(files)]

    def read(self, unit: Unit, rejects: Rejects) -> Iterator[pa.RecordBatch]:
        """Raises SourceError when the download breaks off: what is missing then is no bad input, and another attempt may get it."""
        builder = self._builder(unit.fingerprint.partition(":")[0])
        batches = Batches(self.corpus, rejects, self.config.max_documents)
        for url in self._urls(builder):
            path = _path(url)
            if batches.done or (self.config.max_documents is None and path != unit.name):
                continue
            reader = RowReader(path, self.config, batches)
            try:
                yield from _read(_stream(builder, self.config.split, url), reader)
            except BROKEN as error:
                batches.reject(path, None, Reason.BROKEN_DATA, f"what comes before the break was read: {_first_line(error)}")
            except Exception as error:  # as in _commit
                raise self._error(f"broke off in {path}; run again to go on: {_first_line(error)}") from error
        yield from batches.rest()

    def _commit(self) -> str:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError, RevisionNotFoundError

        try:
            commit = HfApi().dataset_info(self.config.name, revision=self.config.revision, token=_token()).sha
        except GatedRepoError as error:
            raise self._error("is gated; accept its terms on its page and set HF_TOKEN") from error
        except RevisionNotFoundError as error:
            raise self._error(f"has no revision {self.config.revision!r}") from error
        except RepositoryNotFoundError as error:
            raise self._error("does not exist or is private; check `name`, or set HF_TOKEN") from error
        except HFValidationError as error:
            raise self._error(f"is no name of a data set: {_first_line(error)}") from error
        except Exception as error:  # the HTTP library's own errors, which change with it
            raise self._error(f"cannot be found, the hub at {HfApi().endpoint} does not answer: {_first_line(error)}") from error
        if commit is None:
            raise self._error("has no commit to read")
        return str(commit)

    def _builder(self, commit: str) -> "DatasetBuilder":
        from datasets import load_dataset_builder

        try:
            return load_dataset_builder(self.config.name, self.config.config, revision=commit, token=_token())
        except Exception as error:  # missing files, unknown configs, scripts: each of another class
            raise self._error(f"cannot be opened: {_first_line(error)}") from error

    def _urls(self, builder: "DatasetBuilder") -> list[str]:
        """The data files of the split, in the order of their paths."""
        files = builder.config.data_files or {}
        if self.config.split not in files:
            raise self._error(f"has no split {self.config.split!r}; there are {', '.join(map(str, files))}")
        return sorted(str(url) for url in files[self.config.split])

    def _check_text(self, builder: "DatasetBuilder", url: str) -> None:
        try:
            features = _stream(builder, self.config.split, url).features
        except BROKEN:
            return  # reading will set the file aside
        except Exception as error:  # as in _commit
            raise self._error(f"cannot be read: {_first_line(error)}") from error
        refused = no_text(features.arrow_schema, self.config.text_column) if features else None
        if refused:
            raise self._error(f"has no text to read: {refused[1]}; set `text_column`")

    def _sizes(self, paths: list[str], commit: str) -> dict[str, int]:
        from huggingface_hub import HfApi

        sizes = dict.fromkeys(paths, 0)
        try:
            for start in range(0, len(paths), PATHS_AT_ONCE):
                some = paths[start : start + PATHS_AT_ONCE]
                for info in HfApi().get_paths_info(self.config.name, some, repo_type="dataset", revision=commit, token=_token()):
                    sizes[info.path] = getattr(info, "size", 0)
        except Exception as error:  # as in _commit
            raise self._error(f"cannot be listed: {_first_line(error)}") from error
        return sizes

    def _error(self, what: str) -> SourceError:
        return SourceError(f"corpus {self.corpus!r}: data set {self.config.name!r} {what}")


def _stream(builder: "DatasetBuilder", split: str, url: str) -> "IterableDataset":
    """One data file, opened with all the settings that the data set's card gives."""
    from datasets.data_files import DataFilesDict, DataFilesList

    builder.config.data_files = DataFilesDict({split: DataFilesList([url], [()])})
    return builder.as_streaming_dataset(split=split)


def _read(stream: "IterableDataset", reader: RowReader) -> Iterator[pa.RecordBatch]:
    number = 1
    for table in stream.with_format("arrow").iter(batch_size=ROWS_AT_ONCE):
        if refused := no_text(table.schema, reader.columns.text_column):
            reader.batches.reject(reader.file, number, *refused)
            return
        for batch in table.select(readable_columns(table.schema, reader.columns.text_column)).combine_chunks().to_batches():
            yield from add_rows(number, batch, reader)
            number += batch.num_rows
        if reader.batches.done:
            return


def _path(url: str) -> str:
    """The path in the repository: `hf://datasets/org/name@commit/data/a.parquet` -> `data/a.parquet`; a file elsewhere keeps its address."""
    return url.partition("@")[2].partition("/")[2] or url


def _token() -> str | Literal[False]:
    """From the environment only, never the one that a login saved on this machine."""
    return os.environ.get("HF_TOKEN") or False


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
