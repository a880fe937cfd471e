"""Gets telemetry in: receives OTLP, normalises it, hands rows to the store and to listeners."""
