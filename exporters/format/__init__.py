"""Metric families as Prometheus text, OpenMetrics and protobuf."""
