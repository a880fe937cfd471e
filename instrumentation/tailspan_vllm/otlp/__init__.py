"""Encodes records and samples as OTLP messages."""
