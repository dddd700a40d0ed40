"""Forgets documents: finds them with their copies, and certifies what was deleted."""
