"""A budget per layer: how a latency is meant to be spent, and how the slow requests spent it."""
