"""Prometheus rules generated from objectives."""
