"""Objectives: burn rates, Prometheus rules, live evaluation and notifications."""
