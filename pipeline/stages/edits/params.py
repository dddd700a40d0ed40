"""Which lines of a text are cut."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from pipeline.store.params import LARGEST_AMOUNT, Params


class EditRule(StrEnum):
    """Why lines are cut, in the order in which the rules are applied."""

    POLICY = "policy"
    C4 = "c4"
    CITATIONS = "citations"
    MAIL_HEADERS = "mail_headers"
    QUOTES = "quotes"
    SIGNATURES = "signatures"
    UUENCODED = "uuencoded"
    GUTENBERG = "gutenberg"
    FRONT_MATTER = "front_matter"
    MESSAGE_TIMES = "message_times"


class Repeated(Params):
    """Lines or paragraphs that several documents have, such as menus and footers of a site."""

    unit: Literal["line", "paragraph"] = "line"
    """What is compared, without white space at its ends. A blank line ends a paragraph."""
    within: Literal["site", "corpus"] = "site"
    """Documents that are compared: those whose `url` has the same host, or all of the corpus."""
    min_documents: Annotated[int, Field(ge=2, le=LARGEST_AMOUNT)] = 5
    """A line or paragraph that occurs in at least so many documents is cut."""
    min_chars: Annotated[int, Field(ge=1, le=LARGEST_AMOUNT)] = 1
    """Fewest UTF-8 bytes of a line or paragraph that is cut; shorter ones stay."""
    keep_first: bool = False
    """Whether the first of the documents keeps its line or paragraph."""


class EditParams(Params):
    """Lines that are cut out of the texts before they are scrubbed. The cut lines are stored beside the
    texts: `python -m pipeline restore` prints the earlier texts.
    """

    rules: tuple[EditRule, ...] = ()
    """`policy`: lines on JavaScript, cookies, privacy policies and terms of use, as in C4 (Raffel et al.
    2020). `c4`: lines that do not end like a sentence, have fewer than 3 words or a word of more than 1,000
    characters. `citations`: `[1]`, `[edit]`, `[citation needed]`. `mail_headers`: those that a message begins
    with. `quotes`: lines after `>`, and who wrote them. `signatures`: what follows `-- `, up to 12 lines.
    `uuencoded`: files in uuencode. `gutenberg`: what Project Gutenberg writes before and after a book, its
    license for example. `front_matter`: settings in YAML or TOML at the beginning of a page, as Jekyll, Hugo
    and Obsidian have them. `message_times`: the date and time of each message of a chat that WhatsApp or
    another program exported, and its lines that nobody wrote, such as `<Media omitted>`.
    """
    repeated: tuple[Repeated, ...] = ()
    """Lines and paragraphs that are cut because several documents have them."""

    @property
    def cut(self) -> bool:
        """Whether anything is."""
        return bool(self.rules or self.repeated)
