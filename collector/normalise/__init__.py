"""Convert OTLP items to the types of `telemetry/`."""
