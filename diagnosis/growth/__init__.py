"""Growth between baseline and window: terms of the latency, traffic, backlog."""
