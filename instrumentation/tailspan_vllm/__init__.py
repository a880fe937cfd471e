"""Tailspan's plugin for vLLM: one span per request, and engine samples each second."""
