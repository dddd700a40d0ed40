"""Checkpoints: directories that exist whole or not at all, and can prove it."""
