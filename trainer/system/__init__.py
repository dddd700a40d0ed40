"""The system below a run: durable files, signals, errors, figures, starting processes, GPUs."""
