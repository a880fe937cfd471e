"""Queries that commands, pages and alerts share."""
