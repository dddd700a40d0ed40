"""RTF as the usual programs write it: what a reader of the document reads, and nothing of its marks."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.sources.formats.rtf import rtf_text
from pipeline.sources.formats.zipped import BROKEN
from pipeline.sources.source import RefusedError
from tests.pipeline.sources.reading import documents_and_rejects

TEXT_EDIT = r"""{\rtf1\ansi\ansicpg1252\cocoartf2709
\cocoatextscaling0\cocoaplatform0{\fonttbl\f0\fswiss\fcharset0 Helvetica;}
{\colortbl;\red255\green255\blue255;}
{\*\expandedcolortbl;;}
\paperw11900\paperh16840\margl1440\margr1440\vieww11520\viewh8400\viewkind0
\pard\tx720\pardirnatural\partightenfactor0

\f0\fs24 \cf0 The caf\'e9 \
opens at \{four\}.\uc0\u26085 \u26412{}
\b Tea\b0 }"""
WORD_PAD = (
    r"""{\rtf1\ansi\ansicpg1251\deff0\nouicompat\deflang1049{\fonttbl{\f0\fnil\fcharset204 Calibri;}}
{\*\generator Riched20 10.0.19041}\viewkind4\uc1{}
\pard\sa200\sl276\slmult1\f0\fs22\lang25 \'cf\'f0\'e8\'e2\'e5\'f2\par
caf\u233?\tab end\par
}
"""
    + "\0"
)
WORD = r"""{\rtf1\adeflang1025\ansi\ansicpg1252\uc1{\fonttbl{\f0\froman\fcharset0 Times New Roman;}}
{\stylesheet{\ql \fs24 Normal;}}{\info{\title Secret}{\author Jane}}{\header \pard Head\par}
\pard\plain \rtlch\fcs1 \af0
{\rtlch \ltrch\insrsid1 One {\field{\*\fldinst HYPERLINK "http://x.org"}{\fldrslt link}}.}\par
{\*\shppict{\pict\pngblip 89504e470d0a1a0a}}\pard Two\emdash three\ldblquote four\rdblquote\par}"""


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (TEXT_EDIT, "The café \nopens at {four}.日本Tea"),
        (WORD_PAD, "Привет\ncafé\tend"),
        (WORD, "One link.\nTwo—three“four”"),
    ],
    ids=["TextEdit", "WordPad", "Word"],
)
def test_the_text_of_a_document_is_read_without_its_marks(tmp_path: Path, document: str, text: str) -> None:
    (tmp_path / "a.rtf").write_bytes(document.encode("ascii"))
    [row], rejects = documents_and_rejects(tmp_path / "a.rtf")
    assert (row["text"], rejects) == (text, [])


@given(st.text(st.sampled_from("{}\\'*;0123afuc \nbparé\udc80"), max_size=60))
def test_no_document_stops_the_reading(document: str) -> None:
    written = b"{\\rtf1" + document.encode("cp1252", "replace")
    with suppress(RefusedError, *BROKEN):
        assert all(isinstance(text, str) for text in rtf_text(written))


def test_plain_text_that_is_called_rtf_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "a.rtf").write_text("It was late.\n")
    rows, [reject] = documents_and_rejects(tmp_path / "a.rtf")
    assert rows == [] and "name it .txt" in reject.detail
