"""The files of a corpus, found by paths, globs and URLs, and named independently of this machine."""

import fnmatch
import glob
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from http.client import UNAUTHORIZED
from operator import attrgetter
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from pydantic import Field, field_serializer

from pipeline.sources.formats.compression import format_of
from pipeline.sources.source import SourceError, without_queries
from pipeline.sources.source_file import LocalFile, RemoteFile, SourceFile, info_of, may_list
from pipeline.store.params import Anchored

NETRC = (
    "a name and a password stand in ~/.netrc, or in the file that NETRC names: `machine HOST login NAME "
    "password PASSWORD`"
)
SILENT_SECONDS = 120  # of a web server, until the connection counts as broken

Files = dict[str, SourceFile]


class Paths(Anchored):
    """The files of a source, by path, glob or URL."""

    paths: tuple[str, ...] = Field(min_length=1)
    """Paths, globs (`**` crosses directories) or URLs such as `s3://bucket/*.jsonl.zst`, which may hold globs
    too. Relative paths start at the recipe's directory. The query of a URL is not recorded, so a URL that is
    signed again is still the same source. The name and password for a web server stand in ~/.netrc.
    """

    @field_serializer("paths")
    def _shown(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(without_queries, paths))

    def patterns(self) -> list[str]:
        """The URLs, and the paths as they are on this machine."""
        return [path if is_url(path) else str(self.located(path)) for path in self.paths]


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
            f"environment instead; for a web server, {NETRC}"
        )
    files: Files = {}
    for pattern in patterns:
        try:
            found = _remote(corpus, pattern, wanted) if is_url(pattern) else _local(pattern, wanted)
        except (OSError, ValueError) as error:  # a path that is too long, or within a closed directory
            why = getattr(error, "strerror", None) or error
            raise SourceError(f"corpus {corpus!r}: {pattern!r} cannot be read: {why}") from error
        if not found:
            raise SourceError(f"corpus {corpus!r}: no file matches {pattern!r}")
        for name, file in found:
            other = files.setdefault(name, file)
            if other is not file and other.place != file.place:
                raise SourceError(
                    f"corpus {corpus!r}: {other.place} and {file.place} are both named {name!r}; give one "
                    "glob over a common directory, or a corpus to each"
                )
    return dict(sorted(files.items()))


def _local(pattern: str, wanted: Callable[[str], bool]) -> list[tuple[str, SourceFile]]:
    expanded = Path(pattern)
    found = _globbed(expanded, wanted) if glob.has_magic(pattern) else []
    # A file may be called `[a].txt`, which is no match of itself, or `*.txt`, which is one of many.
    if _exists(expanded, raises=not found) and all(file.path != expanded for _, file in found):
        return [(_utf8(expanded.name), LocalFile(expanded))]
    return [*found]


def _exists(path: Path, raises: bool) -> bool:
    """Whether it is there. Of one in a closed directory nobody can say: `raises` OSError, or it is not."""
    try:
        path.stat()  # `exists` does not raise from Python 3.14 on
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        if raises:
            raise
        return False
    return True


def _globbed(pattern: Path, wanted: Callable[[str], bool]) -> list[tuple[str, LocalFile]]:
    fixed = _before_magic(pattern.parts, glob.has_magic)
    start = Path(*fixed)
    below = os.path.join(start, "")  # noqa: PTH118, since a Path ends in no slash
    return [
        (_utf8(os.fspath(path).removeprefix(below) if path != start else path.name), LocalFile(path))
        for path, is_directory in _matches(start, pattern.parts[len(fixed) :])
        if not is_directory or wanted(path.name) or not may_list(path)
    ]


def _utf8(name: str) -> str:
    """The name, with each byte that is not UTF-8 as `%XX`."""
    if name.isascii():
        return name
    return "".join(f"%{ord(c) - 0xDC00:02X}" if "\udc80" <= c <= "\udcff" else c for c in name)


def _matches(directory: Path, parts: Sequence[str]) -> Iterator[tuple[Path, bool]]:
    """What the parts of a glob match below `directory`, and the directories that may not be listed, each with
    whether it is a directory. As with `glob`, no wildcard matches a name that begins with a dot.
    """
    part, rest = parts[0], parts[1:]
    if part == "**":
        for below in _directories(directory):
            yield from _matches(below, rest or ["*"])
    elif not glob.has_magic(part):
        path = directory / part
        if rest:
            yield from _matches(path, rest)
        elif os.path.lexists(path):
            yield path, _is_directory(path)
    elif _is_directory(directory) and not may_list(directory):
        yield directory, True
    else:
        entries = {entry.name: entry for entry in _entries(directory)}
        for name in fnmatch.filter(entries, part):
            if part.startswith(".") or not name.startswith("."):
                path = directory / name
                yield from _matches(path, rest) if rest else [(path, _is_directory(entries[name]))]


def _directories(root: Path) -> Iterator[Path]:
    """`root` and each directory below it once: by its own path, if it is there, else by the first link."""
    seen, links = set[tuple[int, int]](), [root] if _is_directory(root) else []
    while links:
        within = [links.pop(0)]
        while within:
            directory = within.pop()
            try:
                stat = directory.stat()
            except FileNotFoundError:  # since it was listed
                continue
            if (stat.st_dev, stat.st_ino) in seen:
                continue
            seen.add((stat.st_dev, stat.st_ino))
            yield directory
            below = [entry for entry in _entries(directory) if not entry.name.startswith(".")]
            links += [Path(entry) for entry in below if entry.is_symlink() and _is_directory(entry)]
            within += [Path(entry) for entry in reversed(below) if entry.is_dir(follow_symlinks=False)]


def _entries(directory: Path) -> list["os.DirEntry[str]"]:
    """What is in a directory, by name; nothing if there is no such directory or it may not be listed."""
    try:
        with os.scandir(directory) as found:
            return sorted(found, key=attrgetter("name")) if may_list(directory) else []
    except OSError:
        return []


def _is_directory(path: "Path | os.DirEntry[str]") -> bool:
    with suppress(OSError):  # a link within a circle or into a closed directory
        return path.is_dir()
    return False


def _remote(corpus: str, pattern: str, wanted: Callable[[str], bool]) -> list[tuple[str, SourceFile]]:
    from fsspec.core import url_to_fs

    named = f"corpus {corpus!r}: {pattern}"
    try:
        filesystem, path = url_to_fs(pattern, **_web_options(pattern))
        filesystem.invalidate_cache()  # a process that watches a corpus for days must not see an old listing
        if not _has_star(path):
            info = info_of(filesystem, path)
            return [(PurePosixPath(urlsplit(path).path).name, RemoteFile(filesystem, path, info))]
        found = filesystem.glob(path, detail=True)
        fixed = "/".join(_before_magic(path.split("/"), _has_star)) + "/"
        files: list[tuple[str, SourceFile]] = []
        for place, info in found.items():
            if info.get("type") != "directory" or wanted(place):
                # the listing of a web server has neither sizes nor tags
                full = info if info.get("size") is not None else info_of(filesystem, place)
                files.append((place.removeprefix(fixed), RemoteFile(filesystem, place, full)))
        return files
    except FileNotFoundError:
        return []
    except ImportError as error:
        raise SourceError(f"{named} needs a package that is not installed: {error}") from error
    except Exception as error:  # each file system raises its own classes
        remedy = f"; {NETRC}" if getattr(error, "status", None) == UNAUTHORIZED else ""
        why = f"{type(error).__name__}: {error}{remedy}"
        raise SourceError(f"{named} cannot be listed: {why}") from error


def _web_options(pattern: str) -> dict[str, Any]:
    """How files of a web server are read: through the proxy that the environment names, for as long as bytes
    arrive, and `.gz` as it is stored, which many servers declare as an encoding of the text in it.
    """
    scheme = urlsplit(pattern).scheme
    if scheme not in ("http", "https"):
        return {}
    from aiohttp import ClientTimeout
    from fsspec.config import conf

    packed = bool(format_of(urlsplit(pattern).path)[1])
    timeout = ClientTimeout(total=None, sock_connect=SILENT_SECONDS, sock_read=SILENT_SECONDS)
    client = {"trust_env": True, "timeout": timeout, "auto_decompress": not packed}
    given = conf.get(scheme, {})  # a file of the user
    headers = {"Accept-Encoding": "identity"} | given.get("headers", {})
    return {**given, "headers": headers, "client_kwargs": client | given.get("client_kwargs", {})}


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
