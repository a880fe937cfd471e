"""Completes, queues and sends telemetry on two threads, and defines the retry rules."""
