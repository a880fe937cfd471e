"""Reads what a bill is made of: the use of engines and GPUs, and billed requests."""
