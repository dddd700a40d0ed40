"""Rows of whole documents, planned once: which pieces of which documents share a window."""
