"""Diagnose a latency that grew: which requests are slow, for what causes, and what to change."""
