"""What the pipeline tells a user who can set it right."""

from trainer.system.errors import first_line

__all__ = ["PipelineError", "first_line"]


class PipelineError(Exception):
    """A mistake in a recipe, a corpus or a file: the message says what was wrong, where, and what to
    change.
    """
