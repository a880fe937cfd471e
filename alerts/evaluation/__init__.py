"""Evaluate objectives from the store: counts, status, incidents."""
