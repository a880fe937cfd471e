"""Tailspan's plugin for vLLM, which sends a span per request, and a sample per engine and
second."""
