"""Measure the latency of model endpoints from where users are. Runs without Tailspan."""
