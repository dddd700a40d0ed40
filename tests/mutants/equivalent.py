"""Mutants that no test can notice, by file and mutated line, and why."""

EQUIVALENT: dict[tuple[str, str], str] = {}
