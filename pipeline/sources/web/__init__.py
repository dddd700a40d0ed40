"""Web archives: WARC records and the text of their pages."""
