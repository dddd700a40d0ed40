"""Errors that a user can correct."""

from trainer.system.errors import did_you_mean, first_line, install, reason
from trainer.system.hub import refusal
from trainer.system.last_words import last_words
from trainer.system.wording import kind_of

__all__ = [
    "PipelineError",
    "did_you_mean",
    "first_line",
    "install",
    "kind_of",
    "last_words",
    "reason",
    "refusal",
]


class PipelineError(Exception):
    """A mistake in a recipe, a corpus or a file. The message says what was wrong, where, and what to do."""
