"""Grafana dashboards as code: panels with their queries, and the JSON for Grafana."""
