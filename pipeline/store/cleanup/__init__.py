"""What is removed from a store, and what stays."""
