"""Packing of documents into windows, planned once: which pieces of documents share a window."""
