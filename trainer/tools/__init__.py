"""Tools around training: plan a run, and find the models that a command names."""
