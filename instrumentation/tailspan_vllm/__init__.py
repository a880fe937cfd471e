"""Tailspan's plugin for vLLM. It sends one span per request, and one sample per engine each
second."""
