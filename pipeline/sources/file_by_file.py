"""Sources that are read file by file: their units, and what becomes of a file that cannot be read."""

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import pyarrow as pa

from pipeline.sources.documents import Batches
from pipeline.sources.formats.compression import BrokenCompressionError
from pipeline.sources.listing import Files
from pipeline.sources.source import ChangedError, Reason, Unit
from pipeline.sources.source_file import Hash, SourceFile, size_of
from pipeline.store.fingerprint import combined


def units_of(files: Files, max_documents: int | None, sha256: Hash) -> list[Unit]:
    """One unit per file, fingerprinted by content. With `max_documents`, one for all files, because what a
    file gives then depends on the files before it.
    """
    found = [_unit(name, file, sha256) for name, file in files.items()]
    if max_documents is None:
        return found
    made_from = combined(f"{one.name} {one.fingerprint}" for one in found)
    size = sum(one.bytes for one in found)
    together = tuple(one for unit in found for one in unit.files)
    return [Unit(f"first-{max_documents}", made_from, size, files=together)]


def _unit(name: str, file: SourceFile, sha256: Hash) -> Unit:
    """An unreadable file is a unit too, so that reading reports it."""
    try:
        listed, fingerprint = file.listed(sha256)
        return Unit(name, fingerprint, listed.size() or 0, files=((name, listed),))
    except OSError as error:
        return Unit(name, f"unreadable: {error.strerror}", 0, files=((name, file),))


def read_files(
    files: Iterable[tuple[str, SourceFile]],
    batches: Batches,
    read: Callable[[str, SourceFile], Iterator[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    """What `read` gives of the files, each with its name. Sets aside what cannot be read.

    Raises ChangedError where a file is no longer what its fingerprint was taken of: what was read would else
    be taken for its content from then on, also once the file is back.
    """
    for name, file in files:
        if batches.done:
            break
        reject = partial(batches.reject, name, None)
        try:
            yield from read(name, file)
        except BrokenCompressionError as error:
            why = f"only what comes before byte {error.position:,} of the file was read: {error}"
            reject(Reason.BROKEN_COMPRESSION, why, max(0, size_of(file) - error.position))
        except UnicodeError as error:  # of UTF-16 and UTF-32 without a byte order mark
            reject(Reason.INVALID_UTF8, str(error), size_of(file))
        except OSError as error:
            if file.listed_as is not None:
                raise _changed_error(file, error) from error
            reason = Reason.NO_PERMISSION if isinstance(error, PermissionError) else Reason.UNREADABLE
            reject(reason, _why(error), size_of(file))
        try:
            same = file.is_as_listed()
        except Exception as error:  # each file system raises its own classes
            raise _changed_error(file, error) from error
        if not same:
            raise ChangedError(
                f"{file.place} changed while it was read; run again once nothing writes to it, or read a copy"
            )
    yield from batches.rest()


def _changed_error(file: SourceFile, error: Exception) -> ChangedError:
    return ChangedError(
        f"{file.place} could be read when it was listed, but not any more: {_why(error)}; run again once it "
        "can, or leave it out of `paths`"
    )


def _why(error: Exception) -> str:
    if isinstance(error, PermissionError):
        return "no permission to read the file"
    gone = isinstance(error, FileNotFoundError) and not (error.filename and os.path.lexists(error.filename))
    return "the file is gone" if gone else getattr(error, "strerror", None) or str(error) or repr(error)
