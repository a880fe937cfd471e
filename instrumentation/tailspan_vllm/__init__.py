"""Tailspan's plugin for vLLM. The plugin sends one span per request, and one sample per engine each
second."""
