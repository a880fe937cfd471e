"""Measure what grew from baseline to window: terms of the latency, the traffic and the backlog."""
