"""The rig runs a real vLLM on this machine's CPU, with a small model and random weights.

Use it to try or test Tailspan.
"""
