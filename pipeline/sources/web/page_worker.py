"""The process that turns web pages into text. It is run by path with the name of an extractor, so that it
starts quickly, and its own timer kills it when a page takes too long.

In: <charset bytes, page bytes, microseconds> as three u32, then the charset of the HTTP header (or nothing)
and the page. Out: <charset bytes, text bytes> as two u32, then the charset used and the text in UTF-8.
"""

import html
import logging
import re
import resource
import signal
import struct
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.encoding import bytes_to_str, detect_encoding, map_encoding_to_html5
from resiliparse.parse.html import HTMLTree

ASKED = struct.Struct("<III")
ANSWERED = struct.Struct("<II")
MEMORY_BYTES = 2 << 30
# `<title/>` is an empty element in XHTML and the beginning of one in HTML, which ends nowhere: the page would
# have no text. What such an element holds is passed over, since a script may write tags.
UNREAD = "iframe|noembed|noframes|noscript|script|style|textarea|title|xmp"
CLOSED = re.compile(rf"(<({UNREAD})\b[^<>]*(?<!/)>.*?</\2\s*>)|<({UNREAD})\b([^<>]*)/>", re.I | re.S)
XHTML = "http://www.w3.org/1999/xhtml"
# resiliparse takes any three bytes between two tags for an icon if they end in a character beyond ASCII, and
# leaves them out: of a Chinese text with a tag for each character all of it, of `he is <b>né</b>` a word.
SHORT_TEXT = re.compile(r">\s*(?:[^<>&\s]|&#?\w{1,31};){1,2}(?=\s*<)")
KEEP = "\ufdd1"  # is no character, so no text has it
READINGS = ["rt", "rp"]  # of the characters before them, small and above the line
# A formula and its TeX, which stands beside it or in an attribute. Read as text, powers would be factors, and
# what stands beside would be there twice.
FORMULA = re.compile(r"<math\b([^>]*)>(.{0,20000}?)</math\s*>", re.I | re.S)
BESIDE_FORMULA = re.compile(
    r"<annotation\b[^>]*encoding\s*=\s*[\"'](?:application/x-tex|tex|latex)[\"'][^>]*>([^<]*)</annotation",
    re.I,
)
ALTTEXT = re.compile(r"\balttext\s*=\s*(?:\"([^\"]*)\"|'([^']*)')", re.I)
DISPLAYED = re.compile(r"\{\\displaystyle\b\s*(.*)\}", re.S)
BODY = re.compile(r"<body\b[^>]*>", re.IGNORECASE)
# Words in the class or id of what surrounds an article. resiliparse knows some of them, as whole names only.
AROUND = (
    "author caption consent cookie copyright footer gallery newsletter related share slides subscribe widget"
)
MARKED = [f"[{at}*={word} i]" for word in AROUND.split() for at in ("class", "id")]
# What is left out, one after the other, and the share of the text that has to remain: all of a forum is
# comments, and the class of a whole page may be `has-cookie-notice`.
LEFT_OUT: tuple[tuple[dict[str, Any], float], ...] = (
    ({"comments": False}, 0.05),
    ({"post_meta": False}, 0.5),
    ({"skip_elements": [*READINGS, "footer", *MARKED]}, 0.5),
)


def main(extractor: str, asked: BinaryIO, answered: BinaryIO) -> None:
    extract = by_trafilatura() if extractor == "trafilatura" else EXTRACTORS[extractor]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    while header := asked.read(ASKED.size):
        charset_bytes, page_bytes, microseconds = ASKED.unpack(header)
        declared, page = asked.read(charset_bytes).decode("ascii", "replace"), asked.read(page_bytes)
        # The default action of SIGPROF ends the process, whatever it is doing. It counts processor time, so
        # that a busy machine keeps the same pages as another one.
        signal.setitimer(signal.ITIMER_PROF, microseconds / 1e6)
        # as browsers take a label: windows-1252 for iso-8859-1, nothing for a label that they do not know
        by_label = map_encoding_to_html5(declared, False)
        charset = by_label or detect_encoding(page, from_html_meta=True) or "utf-8"
        decoded = bytes_to_str(page, charset, errors="replace")
        if XHTML in decoded[:4096]:
            decoded = CLOSED.sub(lambda found: found[1] or f"<{found[3]}{found[4]}></{found[3]}>", decoded)
        text = extract(FORMULA.sub(_as_tex, decoded))
        signal.setitimer(signal.ITIMER_PROF, 0)
        name = charset.lower().replace("cp125", "windows-125").encode()  # as browsers call it
        content = text.encode("utf-8", "replace")
        answered.write(ANSWERED.pack(len(name), len(content)) + name + content)
        answered.flush()


def by_resiliparse(page: str) -> str:
    # resiliparse takes any list less than four elements deep for a menu
    tree = HTMLTree.parse(BODY.sub(r"\g<0><div><div><div>", SHORT_TEXT.sub(_kept, page), count=1))
    chosen: dict[str, Any] = {
        "preserve_formatting": True,
        "main_content": True,
        "alt_texts": False,
        "skip_elements": READINGS,
    }
    text: str = extract_plain_text(tree, **chosen)
    for left_out, share in LEFT_OUT:
        shorter = extract_plain_text(tree, **(chosen | left_out))
        if len(shorter) >= share * len(text):
            text, chosen = shorter, chosen | left_out
    return text.replace(KEEP, "")


def _as_tex(formula: re.Match[str]) -> str:
    """The TeX of a formula, or the formula unchanged if it has none."""
    if beside := BESIDE_FORMULA.search(formula[2]):
        tex = beside[1]
    elif named := ALTTEXT.search(formula[1]):
        tex = named[1] or named[2] or ""
    else:
        return formula[0]
    tex = tex.strip()
    displayed = DISPLAYED.fullmatch(tex)
    tex = displayed[1].strip() if displayed else tex
    return f"<span>${tex}$</span>" if tex and "<" not in tex else formula[0]


def _kept(short: re.Match[str]) -> str:
    """The text, marked to stay unless it is of an icon font, without width or the link to a heading."""
    text = html.unescape(short[0])[1:].strip()
    return short[0] + KEEP if text.isprintable() and text != "¶" else short[0]


def all_text(page: str) -> str:
    left_out = [*READINGS, "nav", "[role=doc-pagebreak]"]
    return str(extract_plain_text(HTMLTree.parse(page), alt_texts=False, skip_elements=left_out))


EXTRACTORS = {"resiliparse": by_resiliparse, "all": all_text}


def by_trafilatura() -> Callable[[str], str]:
    """trafilatura is imported here, before a page's time begins to run."""
    import trafilatura

    logging.disable()  # it reports a page without text as an error
    # `fast` leaves out its second and third attempts, which take a third of the time
    return lambda page: trafilatura.extract(page, include_comments=False, fast=True) or ""


if __name__ == "__main__":
    main(sys.argv[1], sys.stdin.buffer, sys.stdout.buffer)
