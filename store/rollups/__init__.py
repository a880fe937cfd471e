"""Rollups of requests and samples by minute and hour: counts, sums and sketches."""
