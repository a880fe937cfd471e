"""Totals of requests, engines and GPUs, from which `/metrics` is computed."""
