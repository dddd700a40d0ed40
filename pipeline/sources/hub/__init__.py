"""Data sets of the Hugging Face Hub, and the catalogue of ready-made corpora."""
