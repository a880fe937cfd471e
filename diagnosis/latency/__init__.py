"""The parts of a latency and its slow tail; when the latency grew, and for which requests."""
