"""A latency budget: how much of a latency each layer may use, and how much it used in the slow
requests."""
