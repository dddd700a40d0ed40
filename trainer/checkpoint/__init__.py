"""Checkpoints: directories that are published atomically and verified by checksums."""
