"""Check vLLM's published source, read as text, for the names that the plugin uses."""
