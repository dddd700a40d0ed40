"""What the trainer tells a user whose run cannot start or go on."""


class TrainerError(Exception):
    """A mistake that a user can correct: printed as one message, exit code 2, nothing overwritten."""
