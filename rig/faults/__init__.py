"""Faults that are produced on a real vLLM, one per cause of slow requests, each with its ground
truth.
"""
