"""One thin file for each part of the graph: wiring and metadata, no logic."""
