"""The base of all stage parameters, the schema of a document, and the marks of a conversation in its text."""

from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from pydantic import PrivateAttr

from trainer.config import Config
from trainer.config.problems import FORMS
from trainer.system.paths import at_home

# Documents, characters or tokens: no corpus needs more, and every kernel can count them.
LARGEST_AMOUNT = 10**12


def form(pattern: str, words: str) -> str:
    """A regular expression as the `pattern` of a setting, which messages give in these `words`."""
    FORMS[pattern] = words
    return pattern


# Of what is named in a recipe.
NAME = form(
    r"^[a-z][a-z0-9_]*$", "lower-case letters, digits and `_`, beginning with a letter, such as `books_2`"
)


def required(**columns: pa.DataType) -> pa.Schema:
    """A schema of columns by name that hold no null."""
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns.items()])


DOCUMENT_SCHEMA = pa.schema(
    [
        *required(id=pa.string(), text=pa.large_string()),
        *(pa.field(name, pa.string()) for name in ("source", "url", "metadata")),
    ]
)

GROUP = "~"  # between the 32 digits of a document's id and those of its group, which is held out as one
# A conversation is one text: MESSAGE, role, CONTENT and content of each message. A preference is two of them,
# the better one first, with PAIR between. No content holds a character of MARKS.
ROLES = ("system", "user", "assistant", "tool")
PAIR, MESSAGE, CONTENT = "\x1d", "\x1e", "\x1f"
MARKS = ("\x1c", PAIR, MESSAGE, CONTENT)
# The regular expression of what stands before each content.
ROLE = f"{PAIR}?{MESSAGE}(?:{'|'.join(ROLES)}){CONTENT}"


class Params(Config):
    """The parameters of a stage: frozen, since they are part of its fingerprint."""


class Anchored(Params):
    """Settings with paths."""

    # private: where relative paths start is not part of a fingerprint
    _directory: Path = PrivateAttr(default_factory=Path)

    def anchored(self, directory: Path) -> Self:
        """A copy that resolves relative paths against `directory` instead of the working directory."""
        return anchored(self, directory)

    def located(self, path: str) -> Path:
        """A path in these settings as a path on this machine."""
        return self._directory / at_home(path)


def anchored(settings: Any, directory: Path) -> Any:
    """The settings with each `Anchored` among them anchored at `directory`."""
    if isinstance(settings, tuple):
        return tuple(anchored(one, directory) for one in settings)
    if not isinstance(settings, Params):
        return settings
    inside = {name: anchored(getattr(settings, name), directory) for name in type(settings).model_fields}
    copy = settings.model_copy(update=inside)
    if isinstance(copy, Anchored):
        copy._directory = directory
    return copy
