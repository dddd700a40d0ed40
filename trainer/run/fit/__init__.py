"""Whether a run fits its machine: memory, micro-batch, compiler, preflight."""
