"""What a run leaves behind: metrics, log, plot, sinks, messages to Dagster."""
