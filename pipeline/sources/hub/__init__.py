"""Data sets of the Hugging Face hub, and the catalogue of ready-made corpora."""
