"""Errors that a user can correct."""

from trainer.system.errors import did_you_mean, first_line, install

__all__ = ["PipelineError", "did_you_mean", "first_line", "install"]


class PipelineError(Exception):
    """A mistake in a recipe, a corpus or a file. The message says what was wrong, where, and what to do."""
