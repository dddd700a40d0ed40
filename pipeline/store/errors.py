"""Errors that a user can correct."""

from trainer.system.errors import first_line

__all__ = ["PipelineError", "first_line"]


class PipelineError(Exception):
    """A mistake in a recipe, a corpus or a file. The message says what was wrong, where, and what to do."""
