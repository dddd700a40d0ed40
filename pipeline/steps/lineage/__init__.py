"""Where a checkpoint comes from, which checkpoints saw a document, and how to make one again."""
