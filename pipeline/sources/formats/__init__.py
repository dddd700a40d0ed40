"""File formats: JSON lines, CSV, Parquet, plain text, and how they are compressed."""
