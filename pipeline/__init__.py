"""Corpora to token shards, and the Dagster graph that runs and records the way."""
