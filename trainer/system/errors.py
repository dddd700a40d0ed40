"""Errors that a user can correct, and their exit statuses."""

# Exit statuses: of a TrainerError, and of a `check` that fails.
USER_ERROR, NOT_PASSED = 2, 3


class TrainerError(Exception):
    """An error that the user can correct: printed as one message, exit status 2, nothing overwritten."""


def first_line(error: BaseException) -> str:
    """The first line of a library's error, without its details; the name of its class if it has no text."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
