"""What a checkpoint was made from, and which checkpoints saw a document."""
