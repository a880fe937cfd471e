"""Writes metric families as Prometheus text, OpenMetrics and protobuf."""
