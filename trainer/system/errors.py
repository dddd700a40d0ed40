"""What the trainer tells a user whose run cannot start or go on."""

# Exit statuses: of a TrainerError, and of `check` where the model is not what it should be.
USER_ERROR, NOT_PASSED = 2, 3


class TrainerError(Exception):
    """A mistake that a user can correct: printed as one message, exit code 2, nothing overwritten."""


def first_line(error: BaseException) -> str:
    """What an error of a library says before its details, or the name of its class when it says nothing."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
