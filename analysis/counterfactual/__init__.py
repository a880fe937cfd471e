"""Compute how much each cause contributed to the growth of a latency: remove each cause in a
replay."""
