"""One corpus: from its source to a verdict for each document."""
