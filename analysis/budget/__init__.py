"""A latency budget: how much of a latency each layer may use, and how much the slow requests
used."""
