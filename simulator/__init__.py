"""Simulates a vLLM fleet by discrete events, and sends the OTLP messages of a real server."""
