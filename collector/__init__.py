"""Receives telemetry, converts it to rows, and passes the rows to the store and to listeners."""
