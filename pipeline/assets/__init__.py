"""The Dagster assets, one thin file for each part of the graph: wiring and metadata, no logic."""
