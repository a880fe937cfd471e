"""Diagnose why a latency grew: which requests are slow, why they are slow, and what to change."""
