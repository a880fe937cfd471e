"""Faults on a real vLLM with their ground truth, one for each cause of slow requests."""
