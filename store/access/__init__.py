"""Restrict a database to what a reader may see. No other code does this."""
