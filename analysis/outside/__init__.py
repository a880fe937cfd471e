"""Report the latency, availability and cost of endpoints. Probes measure them at the users'
locations."""
