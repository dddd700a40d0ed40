"""What a run leaves behind: metrics, log, plot, trackers, messages to Dagster."""
