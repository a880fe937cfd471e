"""The version contract: checks vLLM's source for the names that the plugin uses.

The check covers each supported version of vLLM. The check reads the published sources as text. vLLM
is neither installed nor executed.
"""
