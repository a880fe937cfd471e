"""Captures requests inside the API server, through hooks in vLLM's front end."""
