"""Explain a single request: the parts of its latency, and the requests that delayed it."""
