"""Receives telemetry: normalises it and passes rows to the store and to listeners."""
