"""One training run: the loop, its steps, evaluation, checkpoints in time, metrics."""
