"""Of subtitles, what is said is read, and neither numbers nor times nor tags."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.sources.formats.subtitles import said
from tests.pipeline.sources.reading import read

SUBRIP = """1
00:00:01,000 --> 00:00:03,500 X1:1 X2:2
<i>{\\an8}Where is she?</i>

2
00:00:04,000 --> 00:00:05,000
<font color="#ffff00">- Who?</font>
- 3 < 4, {he said}
"""
WEBVTT = """WEBVTT Kind: captions

STYLE
::cue { color: white }

NOTE not to be shown

intro
00:01.000 --> 00:03.500 align:start position:0%
<v Ann>Where is<00:00:02.000><c> she?</c></v>

00:03.500 --> 00:03.510
Where is she?

00:03.510 --> 00:05.000
Where is she?
- Who?
- 3 < 4, {he said}
"""
SAID = "Where is she?\n- Who?\n- 3 < 4, {he said}\n"
LINES = st.text("xy .<>{}:,-é", min_size=1).map(str.strip).filter(lambda line: line and "-->" not in line)


@pytest.mark.parametrize(("name", "content"), [("a.srt", SUBRIP), ("a.vtt", WEBVTT)])
@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_what_is_said_is_read(tmp_path: Path, name: str, content: str, ends: str) -> None:
    (tmp_path / name).write_text("\ufeff" + content, newline=ends)
    (document,), rejects = read(tmp_path / name)
    assert (document["text"], rejects) == (f"Ann: {SAID}" if name.endswith(".vtt") else SAID, [])


@given(st.lists(LINES, unique=True, min_size=1))
def test_each_line_that_is_shown_is_kept_but_for_its_tags(lines: list[str]) -> None:
    shown = [
        f"{place}\n00:00:{place:02},000 --> 00:00:{place:02},900\n{one}" for place, one in enumerate(lines)
    ]
    assert said("\n\n".join(shown)).splitlines() == lines


def test_a_text_without_times_is_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.srt").write_text("Only a text.\n\nOf two lines.")
    (document,), _ = read(tmp_path / "a.srt")
    assert document["text"] == "Only a text.\n\nOf two lines."


def test_bytes_that_are_no_utf8_set_the_file_aside(tmp_path: Path) -> None:
    (tmp_path / "a.srt").write_bytes(SUBRIP.encode() + b"\xff")
    assert read(tmp_path / "a.srt") == ([], [(1, "invalid_utf8")])


@pytest.mark.parametrize("between", ["", "\n", " \n", "\n\n"])
def test_subtitles_without_a_line_between_them_are_read(between: str) -> None:
    cues = [f"{n}\n00:00:0{n},000 --> 00:00:0{n},900\nLine {n}\nof {n}\n" for n in range(1, 6)]
    assert said(between.join(cues)) == "".join(f"Line {n}\nof {n}\n" for n in range(1, 6))
