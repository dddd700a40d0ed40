"""Streams of bytes, converted to UTF-8 or read as a file."""

import codecs
import io
from collections.abc import Iterator

_NEVER_UTF8 = "\udcff"  # encoded as the byte FF, which later checks reject as invalid UTF-8


def _marked(error: UnicodeError) -> tuple[str, int]:
    if isinstance(error, UnicodeDecodeError):
        return _NEVER_UTF8, error.end
    raise error


codecs.register_error("groundwork-mark", _marked)


def as_utf8(content: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """The same text in UTF-8. What is invalid in `encoding` becomes a byte that is invalid in UTF-8."""
    if codecs.lookup(encoding).name == "utf-8":
        yield from content
        return
    decoder = codecs.getincrementaldecoder(encoding)("groundwork-mark")
    for block in content:
        yield decoder.decode(block).encode("utf-8", "surrogateescape")
    yield decoder.decode(b"", final=True).encode("utf-8", "surrogateescape")


class Counted(Iterator[bytes]):
    """The same blocks; once a reader has given up, the share that it has left."""

    def __init__(self, content: Iterator[bytes]):
        self._content = content
        self._read = 0

    def __next__(self) -> bytes:
        block = next(self._content)
        self._read += len(block)
        return block

    def share_left(self) -> float:
        """Reads to the end."""
        rest = sum(map(len, self._content))
        return rest / max(self._read + rest, 1)


class BlockStream(io.RawIOBase):
    """An iterator of blocks as a readable file."""

    def __init__(self, content: Iterator[bytes]):
        self._content = content
        self._held = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._held:
            block = next(self._content, None)
            if block is None:
                return 0
            self._held = block
        size = min(len(buffer), len(self._held))
        buffer[:size] = self._held[:size]
        self._held = self._held[size:]
        return size
