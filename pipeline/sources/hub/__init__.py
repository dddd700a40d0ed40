"""Data sets of the Hugging Face Hub, and the catalog of ready-made corpora."""
