"""What leaves the store: clean documents and token files for other programs."""
