"""Data sets of the Hugging Face hub, and the catalog of ready-made corpora."""
