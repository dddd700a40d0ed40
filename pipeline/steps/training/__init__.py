"""From token shards to a running trainer: its plan, its mixture, its processes."""
