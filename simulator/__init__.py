"""Simulate a vLLM fleet by discrete events, and send the same OTLP messages as real servers."""
