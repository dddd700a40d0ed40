"""Texts as a terminal shows them."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from pipeline.reports.tables import printable


@given(st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"])))
def test_every_character_of_a_text_is_shown_as_it_is(text: str) -> None:
    """Spaces of all widths, joiners of emoji and of Persian, soft hyphens: none makes a text look damaged."""
    assert printable(f"1874\u00a0\u3000\u200c{text}") == f"    1874\u00a0\u3000\u200c{text}"


@given(st.text(st.characters(categories=["Cc", "Cs"])))
def test_what_a_terminal_would_obey_or_cannot_show_is_not_printed(text: str) -> None:
    shown = printable(f"a\x1b[2J\x9b{text}")
    assert {unicodedata.category(one) for one in shown if one != "\n"} <= {"So", "Zs", "Ll", "Lu", "Ps", "Nd"}


def test_a_preference_is_shown_message_by_message_and_one_conversation_after_the_other() -> None:
    pair = "\x1euser\x1fHi\nthere\x1eassistant\x1fYes\x1d\x1euser\x1fHi\nthere\x1eassistant\x1fNo"
    lines = ["user: Hi", "there", "assistant: Yes", "", "user: Hi", "there", "assistant: No"]
    assert printable(pair) == "\n".join(f"    {line}" for line in lines)
