"""Exports telemetry: Prometheus `/metrics`, and OTLP to another backend."""
