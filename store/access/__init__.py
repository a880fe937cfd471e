"""Restrict a database to what a reader may see: the one place where this is enforced."""
