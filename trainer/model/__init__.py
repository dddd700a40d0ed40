"""The model, its attention and its loss; knows nothing of parallelism or the run."""
