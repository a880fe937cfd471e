"""Grafana dashboards as code: panels with their queries, and Grafana's JSON."""
