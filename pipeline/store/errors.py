"""What the pipeline tells a user who can set it right."""


class PipelineError(Exception):
    """A mistake in a recipe, a corpus or a file: the message says what was wrong, where, and what to
    change.
    """
