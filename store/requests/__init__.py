"""Read single requests: lookup by id, best row, neighbours, latency rank, requests in flight."""
