"""Receives telemetry as OTLP, and passes it as rows to the store and to listeners."""
