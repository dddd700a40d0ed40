"""Which training texts hold a text or resemble it, and when a checkpoint read them."""
