"""Versions on disk: content-addressed, published whole, reused. What every layer above stands on."""
