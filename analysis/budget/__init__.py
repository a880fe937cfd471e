"""A latency budget: how much of a latency each layer may use, and how much each layer used in the
slow requests."""
