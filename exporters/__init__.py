"""Serve `/metrics` to Prometheus, and forward OTLP to another backend."""
