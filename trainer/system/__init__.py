"""The machine: durable files, signals, errors, starting processes, GPUs."""
