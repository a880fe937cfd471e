"""Gets telemetry out: Prometheus `/metrics`."""
