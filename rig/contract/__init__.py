"""The version contract: checks the names inside vLLM that the plugin uses, for each version of
vLLM.

It reads the published sources as text. vLLM is neither installed nor executed.
"""
