"""Compare two sets of requests, and separate the effect of a change from mix and load."""
