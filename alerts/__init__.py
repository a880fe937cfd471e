"""Objectives, burn rates, Prometheus rules, the evaluator and notifications."""
