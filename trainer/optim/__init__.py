"""Optimizers: which parameter is updated by which rule, exactly once."""
