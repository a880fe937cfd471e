"""The rig runs a real vLLM on this machine's CPU, with a small model and random weights.

Use the rig to try or test Tailspan. To monitor your own server, you do not need it.
"""
