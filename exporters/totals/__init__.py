"""The totals of requests, engines and GPUs for `/metrics`."""
