"""Tailspan's instrumentation for vLLM: one span per request, engine samples each second."""
