"""Receives OTLP telemetry, and passes its rows to the store and to listeners."""
