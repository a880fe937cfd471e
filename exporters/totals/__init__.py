"""Totals of requests, engines and GPUs that `/metrics` is computed from."""
