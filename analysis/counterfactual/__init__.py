"""Compute how much each cause contributed to the growth of a latency.

Each cause is removed in a replay."""
