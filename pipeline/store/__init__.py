"""Versions on disk: content-addressed, published atomically, reused. Every layer above builds on this one."""
