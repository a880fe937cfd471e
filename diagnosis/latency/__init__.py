"""Latencies: their parts, the slow tail, the start of a growth, and the groups that it affects."""
