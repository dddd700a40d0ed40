"""Stages applied to stored parts: read from the store, map through the engine, publish the result."""
