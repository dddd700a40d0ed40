"""Token shards to checkpoints. Stands alone: imports neither `pipeline` nor `dagster`."""
