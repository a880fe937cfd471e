"""Compute the bytes that engine steps move, the FLOPs that they compute, and the bottleneck. Pure:
no I/O."""
