"""RTF, as TextEdit and WordPad save it: the text, without pictures, headers, footers and notes."""

from collections.abc import Iterator

from pipeline.sources.formats.first_bytes import RTF_BEGINS
from pipeline.sources.source import Reason, RefusedError


def rtf_text(document: bytes) -> Iterator[str]:
    """The text of a document. Raises RefusedError for a file that is not RTF, and ValueError for a broken
    one.
    """
    if not document.startswith(RTF_BEGINS):
        raise RefusedError(Reason.BROKEN_DATA, "the file is not RTF: if it is plain text, name it .txt")
    from striprtf.striprtf import rtf_to_text

    # What is not ASCII is written in ASCII; some programs write bytes all the same.
    yield rtf_to_text(document.decode("cp1252", "replace"), errors="replace")
