"""The content of a web page in an archive: its codings undone, and its text decoded by charset."""

import codecs
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import zstandard

from pipeline.sources.source import Reason, RefusedError
from pipeline.store.errors import install

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
# Bytes that a decompressor gets at a time. One of zlib becomes 1,032 at most, one of the others any number.
ZLIB_SLICE, SLICE = 1 << 16, 1 << 12
MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


def undone(content: bytes, codings: str, limit: int) -> bytes:
    """The content, of at most `limit` bytes, without the codings of the header `Content-Encoding`, nor a
    compression that no header names. Many archives store a page decoded and keep the header, so content that
    does not begin as a coding does is taken as it is.

    Raises RefusedError for a coding that cannot be undone, and for more than `limit` bytes.
    """
    for coding in reversed([name.strip().lower() for name in codings.split(",")]):
        if coding not in ("", "identity"):
            content = _without(coding, content, limit)
    for coding, magic in (("gzip", GZIP), ("zstd", ZSTD)):
        if content.startswith(magic):
            content = _without(coding, content, limit)
    return content


def _without(coding: str, content: bytes, limit: int) -> bytes:
    decoder, magic = _DECODERS.get(coding, (None, b""))
    named = f"the content coding {coding!r}"
    if decoder is None:
        raise RefusedError(Reason.BROKEN_RECORD, f"{named} is none of {', '.join(_DECODERS)}")
    if not content or not content.startswith(magic):
        return content
    try:
        found = decoder(content, limit)
    except ImportError:
        raise RefusedError(Reason.BROKEN_RECORD, f"{named} needs brotli: run {install('web')}") from None
    except (zlib.error, zstandard.ZstdError, ValueError, RuntimeError) as error:
        if not magic and content.lstrip().startswith(b"<") and b"\0" not in content:  # it is text
            return content
        raise RefusedError(Reason.BROKEN_RECORD, f"{named} cannot be undone: {error}") from error
    if len(found) > limit:
        raise RefusedError(Reason.TOO_LONG, f"more than {limit} bytes")
    return found


def _unpacked(decompressor: Callable[[], Any], size: int, content: bytes, limit: int) -> bytes:
    """One member of gzip or frame of zstd after another, `size` bytes at a time, up to more than `limit`."""
    found = bytearray()
    while content and len(found) <= limit:
        one = decompressor()
        for start in range(0, len(content), size):
            found += one.decompress(content[start : start + size])
            if one.eof or len(found) > limit:
                break
        _check_end(one.eof or len(found) > limit)
        content = one.unused_data + content[start + size :]
    return bytes(found)


def _zlib(window: int) -> Callable[[bytes, int], bytes]:
    return partial(_unpacked, partial(zlib.decompressobj, window), ZLIB_SLICE)


def _deflate(content: bytes, limit: int) -> bytes:
    """Inflates content with or without zlib's header: servers send both."""
    try:
        return _zlib(zlib.MAX_WBITS)(content, limit)
    except zlib.error:
        return _zlib(-zlib.MAX_WBITS)(content, limit)


def _brotli(content: bytes, limit: int) -> bytes:
    import brotli

    decompressor, found = brotli.Decompressor(), bytearray()
    try:
        for start in range(0, len(content), SLICE):
            found += decompressor.process(content[start : start + SLICE])
            if len(found) > limit:
                return bytes(found)
    except brotli.error as error:
        raise ValueError(str(error) or "it is damaged") from error
    _check_end(decompressor.is_finished())
    return bytes(found)


def _check_end(reached: bool) -> None:
    """Raises ValueError for content without its end: the checksum stands there."""
    if not reached:
        raise ValueError("it is damaged, or ends too early")


_DECODERS: dict[str, tuple[Callable[[bytes, int], bytes], bytes]] = {
    "gzip": (_zlib(16 + zlib.MAX_WBITS), GZIP),
    "x-gzip": (_zlib(16 + zlib.MAX_WBITS), GZIP),
    "deflate": (_deflate, b""),
    "zstd": (partial(_unpacked, lambda: zstandard.ZstdDecompressor().decompressobj(), SLICE), ZSTD),
    "br": (_brotli, b""),
}


def text_of(content: bytes, charset: str) -> tuple[str, str]:
    """Plain text and the charset by which it was decoded: by its byte order mark, else by `charset` as
    browsers read that label, else as UTF-8. Raises RefusedError.
    """
    from resiliparse.parse.encoding import map_encoding_to_html5

    mark, name = next((one for one in MARKS if content.startswith(one[0])), (b"", ""))
    name = name or map_encoding_to_html5(charset, False) or "utf-8"
    try:
        return content[len(mark) :].decode(name), shown(name)
    except UnicodeDecodeError as error:
        why = f"byte {len(mark) + error.start} of the record: {error.reason}"
        why = why if name == "utf-8" else f"{why} in {shown(name)}"
        raise RefusedError(Reason.INVALID_UTF8, why) from error


def shown(charset: str) -> str:
    """Python's name of a charset as browsers have it: windows-1252, not cp1252."""
    return charset.lower().replace("cp125", "windows-125")
