"""Serves `/metrics` to Prometheus, and forwards OTLP to another backend."""
