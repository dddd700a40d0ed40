"""What the trainer tells a user whose run cannot start or go on."""

# Exit statuses: of a TrainerError, and of `check` where the model is not what it should be.
USER_ERROR, NOT_PASSED = 2, 3


class TrainerError(Exception):
    """A mistake that a user can correct: printed as one message, exit code 2, nothing overwritten."""
