"""The files of a corpus, found by paths, globs and URLs, and named independently of this machine."""

import glob
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Self
from urllib.parse import urlsplit

from pydantic import Field, PrivateAttr, field_serializer

from pipeline.sources.errors import SourceError
from pipeline.sources.redaction import without_queries
from pipeline.sources.source import Unit
from pipeline.sources.source_file import Hash, LocalFile, RemoteFile, SourceFile
from pipeline.store.params import Params

Files = dict[str, SourceFile]


class Paths(Params):
    """The files of a source, by path, glob or URL."""

    paths: tuple[str, ...] = Field(
        min_length=1,
        description="Paths, globs (`**` crosses directories) or URLs such as `s3://bucket/*.jsonl.zst`, "
        "which may hold globs too. Relative paths start at the recipe's directory. The query of a URL is "
        "not recorded, so a URL that is signed again is still the same source.",
    )
    # private: the place of a corpus is not part of its fingerprint
    _directory: Path = PrivateAttr(default_factory=Path)

    @field_serializer("paths")
    def _shown(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(without_queries, paths))

    def anchored(self, directory: Path) -> Self:
        """A copy that resolves relative paths against `directory` instead of the working directory."""
        anchored = self.model_copy()
        anchored._directory = directory
        return anchored

    def patterns(self) -> list[str]:
        """The URLs, and the paths as they are on this machine."""
        return [
            path if is_url(path) else str(self._directory / Path(path).expanduser()) for path in self.paths
        ]


def is_url(path: str) -> bool:
    return "://" in path


def listed(corpus: str, patterns: Sequence[str], wanted: Callable[[str], bool]) -> Files:
    """The files by name, in the order of their names. Of the directories that a glob matches, only those with
    a `wanted` name are kept. Raises SourceError.

    A name is the path below the fixed part of its pattern, so it is the same on every machine.
    """
    if any(map(_holds_credentials, patterns)):
        raise SourceError(
            f"corpus {corpus!r}: a URL in its `paths` holds a user name or a password; set them in the "
            "environment instead"
        )
    files: Files = {}
    for pattern in patterns:
        found = _remote(corpus, pattern, wanted) if is_url(pattern) else _local(pattern, wanted)
        if not found:
            raise SourceError(f"corpus {corpus!r}: no file matches {pattern!r}")
        for name, file in found.items():
            other = files.setdefault(name, file)
            if other is not file and other.place != file.place:
                raise SourceError(
                    f"corpus {corpus!r}: {other.place} and {file.place} are both named {name!r}; give one "
                    "glob over a common directory"
                )
    return dict(sorted(files.items()))


def unit(name: str, file: SourceFile, sha256: Hash) -> Unit:
    """The unit of a file. An unreadable file is a unit too, so that reading reports it."""
    try:
        return Unit(name, file.fingerprint(sha256), file.size() or 0)
    except OSError as error:
        return Unit(name, f"unreadable: {error.strerror}", 0)


def _local(pattern: str, wanted: Callable[[str], bool]) -> Files:
    expanded = Path(pattern)
    if expanded.exists():
        return {expanded.name: LocalFile(expanded)}
    if not glob.has_magic(pattern):
        return {}
    fixed = Path(*_before_magic(expanded.parts, glob.has_magic))
    paths = [Path(found) for found in sorted(glob.glob(str(expanded), recursive=True))]  # noqa: PTH207 - Path.glob finds hidden files too
    return {
        path.relative_to(fixed).as_posix(): LocalFile(path)
        for path in paths
        if not path.is_dir() or wanted(path.name)
    }


def _remote(corpus: str, pattern: str, wanted: Callable[[str], bool]) -> Files:
    from fsspec.core import url_to_fs

    try:
        filesystem, path = url_to_fs(pattern)
        filesystem.invalidate_cache()  # a process that watches a corpus for days must not see an old listing
        if not _has_star(path):
            info = filesystem.info(path)
            return {PurePosixPath(urlsplit(path).path).name: RemoteFile(filesystem, path, info)}
        found = filesystem.glob(path, detail=True)
        fixed = "/".join(_before_magic(path.split("/"), _has_star)) + "/"
        names = {
            place: place.removeprefix(fixed)
            for place, info in found.items()
            if info.get("type") != "directory" or wanted(place)
        }
        return {
            name: RemoteFile(filesystem, place, _full_info(filesystem, place, found[place]))
            for place, name in names.items()
        }
    except FileNotFoundError:
        return {}
    except ImportError as error:
        raise SourceError(
            f"corpus {corpus!r}: {pattern} needs a package that is not installed: {error}"
        ) from error
    except Exception as error:  # each file system raises its own classes
        raise SourceError(
            f"corpus {corpus!r}: {pattern} cannot be listed: {type(error).__name__}: {error}"
        ) from error


def _full_info(filesystem: Any, place: str, info: dict[str, Any]) -> dict[str, Any]:
    """The listing of a web server has neither sizes nor tags."""
    return info if info.get("size") is not None else dict(filesystem.info(place))


def _holds_credentials(pattern: str) -> bool:
    """An `@` alone proves nothing: in some stores' URLs, a container name comes before it."""
    parts = urlsplit(pattern)
    return is_url(pattern) and (
        parts.password is not None or (parts.scheme in ("http", "https") and parts.username is not None)
    )


def _has_star(path: str) -> bool:
    """As glob.has_magic, but the `?` of a URL is not a wildcard."""
    return "*" in path or "[" in path


def _before_magic(parts: Sequence[str], magic: Callable[[str], bool]) -> Sequence[str]:
    return parts[: next(index for index, part in enumerate(parts) if magic(part))]
