"""Subtitles (SubRip and WebVTT): what is said, without numbers, times and tags."""

import re
from itertools import pairwise

from pipeline.sources.formats.text_files import universal_newlines

MAX_SUBTITLES_BYTES = 16 << 20
_TIME = r"(?:\d+:)?\d+:\d\d[,.]\d+"
_TIMES = re.compile(rf"\s*{_TIME} *--> *{_TIME}")
_NUMBER = re.compile(r"\s*\d+\s*")
_VOICE = re.compile(r"<v(?:\.[^\s>]+)*\s+([^>\n]+)>")
# Of fonts and voices; of a place on the screen; of the time of a word.
_TAG = re.compile(rf"</?(?:[biu]|font|c|v|lang|ruby|rt)\b[^>\n]*>|\{{\\[^}}\n]*\}}|<{_TIME}>", re.I)


def subtitles_text(file: bytes) -> str:
    """What is said in a UTF-8 file."""
    return said(universal_newlines(file.decode("utf-8", "surrogateescape")))


def said(text: str) -> str:
    """The lines below each time, behind the name of a voice if there is one. A line that is shown again with
    the next one, as those of live subtitles are, is said once. A text without times is left as it is.
    """
    kept: list[str] = []
    shown_before: list[str] = []
    found = False
    for block in re.split(r"\n(?:[ \t]*\n)+", text):
        lines = block.splitlines()
        times = [place for place, line in enumerate(lines) if _TIMES.match(line)]
        found = found or bool(times)
        for place, following in pairwise([*times, None]):  # in some files no line stands between two
            assert place is not None
            end = following
            if following is not None and _NUMBER.fullmatch(lines[following - 1]):
                end = following - 1
            for line in lines[place + 1 : end]:
                shown = _TAG.sub("", line).strip()
                if shown and shown not in shown_before[-2:]:
                    kept.append(_TAG.sub("", _VOICE.sub(r"\1: ", line)).strip())
                    shown_before.append(shown)
    return "".join(f"{line}\n" for line in kept) if found else text
