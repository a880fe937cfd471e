"""Tailspan's plugin for vLLM. It sends one span per request, and a sample of each engine per
second."""
