"""What a folder holds, from a sample of its files."""
