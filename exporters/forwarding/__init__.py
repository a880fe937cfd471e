"""Forwards received OTLP messages to another backend."""
