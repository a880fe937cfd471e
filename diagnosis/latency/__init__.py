"""Analyse latencies: their parts, the slow tail, the start of a growth, and the affected groups."""
