"""Faults on a real vLLM, one per cause of slow requests, with their ground truth."""
