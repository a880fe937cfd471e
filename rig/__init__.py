"""The rig: a real vLLM on this machine's CPU, with a small model of random weights.

Use it to try Tailspan. The tests use it as well. You do not need it to monitor your own server.
"""
