"""The version contract: what the instrumentation relies on inside vLLM, checked per version.

Published sources are read as text; vLLM is neither installed nor executed.
"""
