"""Operating the graph: sensors, alerts, orphaned runs, the Launchpad, the terminal log, run resources."""
