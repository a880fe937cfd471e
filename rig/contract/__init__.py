"""The version contract: checks, for each version of vLLM, the names that the instrumentation uses.

The published sources are read as text. vLLM is neither installed nor executed.
"""
