"""Completes, queues and sends telemetry on two threads."""
