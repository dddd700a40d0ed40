"""Plans a run before it is started: memory, time, cost and expected loss."""
