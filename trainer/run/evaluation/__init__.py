"""Held-out loss, samples, benchmarks and log-likelihoods."""
