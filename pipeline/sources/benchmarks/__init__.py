"""Benchmarks: questions with possible answers, of which a model should find the right one likeliest."""
