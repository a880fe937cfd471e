"""Objectives evaluated from the store: counts, status, incidents."""
