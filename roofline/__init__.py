"""Compute the bytes and FLOPs of engine steps, and the bottleneck. Pure: no I/O."""
