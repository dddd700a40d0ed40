"""The recipe: one YAML file that describes an experiment. Settings of a single stage or source are there."""
