"""Each stage applied to stored parts: reads versions from the store, calls a kernel, publishes a version."""
