"""The version contract: checks vLLM's source for the names that the plugin uses.

The check reads the published sources of each supported version as text. vLLM is neither installed
nor executed.
"""
