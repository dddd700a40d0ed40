"""Talking to a tuned model: in the terminal, or on a page of this machine."""
