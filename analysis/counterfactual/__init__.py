"""Compute how much each cause contributed to the growth of a latency, by replays without the
cause."""
