"""Converts OTLP to the types of `telemetry/`: functions that refuse items and never raise."""
