"""Read single requests: lookup, best row, neighbours, latency rank, requests in flight."""
