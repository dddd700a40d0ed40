"""Sources that are read file by file: their units, and what becomes of a file that cannot be read."""

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import pyarrow as pa

from pipeline.sources.documents import Batches
from pipeline.sources.formats.compression import BrokenCompressionError
from pipeline.sources.listing import Files
from pipeline.sources.source import Reason, Unit
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
    return [Unit(f"first-{max_documents}", made_from, size, files=tuple(files.items()))]


def _unit(name: str, file: SourceFile, sha256: Hash) -> Unit:
    """An unreadable file is a unit too, so that reading reports it."""
    try:
        return Unit(name, file.fingerprint(sha256), file.size() or 0, files=((name, file),))
    except OSError as error:
        return Unit(name, f"unreadable: {error.strerror}", 0, files=((name, file),))


def read_files(
    files: Iterable[tuple[str, SourceFile]],
    batches: Batches,
    read: Callable[[str, SourceFile], Iterator[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    """What `read` gives of the files, each with its name. Sets aside what it cannot read."""
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
        except PermissionError:
            reject(Reason.NO_PERMISSION, "no permission to read the file", size_of(file))
        except OSError as error:
            gone = isinstance(error, FileNotFoundError) and not os.path.lexists(file.path)
            why = "the file is gone" if gone else error.strerror or type(error).__name__
            reject(Reason.UNREADABLE, why, size_of(file))
    yield from batches.rest()
