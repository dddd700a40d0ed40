"""Duplicates across all corpora: signatures, candidates, verification, decisions."""
