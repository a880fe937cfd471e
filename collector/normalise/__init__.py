"""Converts OTLP items to the types of `telemetry/`. Invalid items are refused and raise no
exception.
"""
