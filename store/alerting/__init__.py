"""Stores counts per objective, incidents, and notifications."""
