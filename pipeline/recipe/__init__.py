"""The recipe: one YAML file that describes an experiment, and every setting that belongs to no single stage
or source.
"""
