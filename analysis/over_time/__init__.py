"""Requests of a range over time: in bins, from their rows or from rollups."""
