"""Tools around training: plan a run, compare runs, sweep settings."""
