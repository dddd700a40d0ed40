"""Plans a run before it is started: memory, time and cost."""
