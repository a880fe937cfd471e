"""Compute how much each cause contributed to the growth of a latency, from replays in which the
cause is removed."""
