"""The threads that complete, queue and send telemetry, and the retry rules."""
