"""The rig: a real vLLM on this machine's CPU, with a tiny random model.

For trying Tailspan and for its tests; a server of your own needs none of this.
"""
