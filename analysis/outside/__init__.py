"""Latency, availability and cost of endpoints, measured by probes from where users are."""
