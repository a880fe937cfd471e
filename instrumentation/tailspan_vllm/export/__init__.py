"""The threads that complete, queue and send telemetry, and what becomes of each message."""
