"""What a checkpoint was made from, which checkpoints saw a document, and how to reproduce a checkpoint."""
