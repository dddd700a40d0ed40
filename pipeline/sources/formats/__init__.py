"""File formats: JSON, CSV, Parquet, plain text, HTML, mail, and how they are compressed."""
