"""The files of a folder that are not read, and why."""

import re
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from email import message_from_bytes
from pathlib import PurePosixPath

from pipeline.sources.files import JSON_LINES, MAIL, MAILBOX
from pipeline.sources.formats.compression import BrokenCompressionError, format_of
from pipeline.sources.formats.first_bytes import COMPRESSED, LOOKED_AT, ZIP, is_one_a_line, not_text
from pipeline.sources.formats.other_formats import XML, remedy
from pipeline.sources.formats.streams import blocks
from pipeline.sources.source import Reason, SourceError
from pipeline.sources.source_file import LocalFile
from trainer.system.wording import counted

Unread = dict[str, tuple[str, int]]  # the reason of each file, and its bytes
REASONS_SHOWN, NAMES_SHOWN = 10, 4
_XML = re.compile(rb"(?:\xef\xbb\xbf)?\s*<(?:\?xml|mediawiki)\b")
# Of the headers that mail begins with; the sender is often far behind.
_OF_MAIL = {"delivered-to", "return-path", "received", "message-id", "mime-version", "x-mozilla-status"}


def reasons_of(unread: Unread, total: int = 0) -> list[str]:
    """A line for each reason, with some of its files and, if there is a `total` of bytes, their share."""
    names_by_reason: dict[str, list[str]] = defaultdict(list)
    for name, (why, _) in unread.items():
        names_by_reason[why].append(name)
    lines = []
    for why, names in list(names_by_reason.items())[:REASONS_SHOWN]:
        share = f" ({sum(unread[name][1] for name in names) / total:.0%} of the bytes)" if total else ""
        lines.append(f"{_some_of(names)}{share}: {why}")
    if number := sum(map(len, list(names_by_reason.values())[REASONS_SHOWN:])):
        lines.append(f"{counted(number, 'more files')}, for other reasons")
    return lines


def _some_of(names: Sequence[str]) -> str:
    """Files with different suffixes first."""
    firsts = {PurePosixPath(name).suffix or name: name for name in reversed(names)}
    shown = [*reversed(firsts.values())][:NAMES_SHOWN] if len(names) > NAMES_SHOWN else names
    more = [f"and {counted(len(names) - len(shown), 'more files')}"] if len(names) > len(shown) else []
    return " ".join([", ".join(name if name.isprintable() else ascii(name) for name in shown), *more])


def no_content(file: LocalFile) -> str:
    """Why a file has no bytes."""
    try:
        file.check()
    except FileNotFoundError:
        return "the link leads to no file"
    except OSError as error:
        return error.strerror or str(error)
    return "the file is empty"


def no_format(name: str, file: LocalFile) -> str:
    """Why a file with this name is not read, and what to do: by its name, else by its first bytes."""
    plain, compression = format_of(name)
    if known := remedy(plain):
        return known
    if compression:
        with suppress(BrokenCompressionError, SourceError, OSError):
            if _XML.match(next(blocks(file, compression), b"")):
                return XML
        return f"packed, in a format that is not read: unpack it, or name it .txt{compression} if it is text"
    try:
        with file.open() as opened:
            start = opened.read(LOOKED_AT)
    except OSError as error:
        return error.strerror or str(error)
    if start.startswith(tuple(COMPRESSED)):
        return "the file is packed: unpack it"
    if start.startswith(ZIP):
        return "packed, as Office documents are: write its text into a text file"
    refused = not_text(start, name, "utf-8")
    if refused and refused[0] == Reason.UNSUPPORTED_FORMAT:
        return refused[1]
    if b"\0" in start:
        return "the file is not text"
    if _XML.match(start):
        return XML
    if start.lstrip().startswith(b"{") and is_one_a_line(start, whole=False):
        return f"the file is JSON: name it {JSON_LINES[0]}"
    message = message_from_bytes(start)
    if not _OF_MAIL.isdisjoint(map(str.lower, message.keys())):
        return f"the file is mail: name it {MAILBOX if message.get_unixfrom() else MAIL}"
    return "a format that is not read: name it .txt if it is plain text"
