"""Where documents come from: each source yields documents and names what it could not read."""
