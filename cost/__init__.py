"""The cost of requests, and the bill that they sum to. Pure: no clock, no socket, no SQL."""
