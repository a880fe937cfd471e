"""Receive OTLP telemetry, and pass its rows to the store and to listeners."""
