"""Counts, sums and sketches by minute and hour, of requests and of samples."""
