"""The process that turns web pages into text. It is run by path, so that it starts quickly, and its own alarm
kills it when a page takes too long.

In: <charset bytes, page bytes, microseconds> as three u32, then the charset of the HTTP header (or nothing)
and the page. Out: <charset bytes, text bytes> as two u32, then the charset used and the text in UTF-8.
"""

import codecs
import resource
import signal
import struct
import sys
from typing import BinaryIO

from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.encoding import bytes_to_str, detect_encoding

ASKED = struct.Struct("<III")
ANSWERED = struct.Struct("<II")
MEMORY_BYTES = 2 << 30


def main(asked: BinaryIO, answered: BinaryIO) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    while header := asked.read(ASKED.size):
        charset_bytes, page_bytes, microseconds = ASKED.unpack(header)
        declared, page = asked.read(charset_bytes).decode("ascii", "replace"), asked.read(page_bytes)
        # the default action of SIGALRM ends the process, whatever it is doing
        signal.setitimer(signal.ITIMER_REAL, microseconds / 1e6)
        charset = declared if _known(declared) else detect_encoding(page, from_html_meta=True) or "utf-8"
        text = extract_plain_text(
            bytes_to_str(page, charset, errors="replace"),
            preserve_formatting=True,
            main_content=True,
            alt_texts=False,
        )
        signal.setitimer(signal.ITIMER_REAL, 0)
        name, content = charset.lower().encode(), text.encode("utf-8", "replace")
        answered.write(ANSWERED.pack(len(name), len(content)) + name + content)
        answered.flush()


def _known(charset: str) -> bool:
    try:
        return bool(codecs.lookup(charset))
    except LookupError:
        return False


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
