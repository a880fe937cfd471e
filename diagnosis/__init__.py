"""Diagnose why a latency grew: which requests are slow, which causes made them slow, what to
change."""
