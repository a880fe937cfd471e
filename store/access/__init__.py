"""Restrict a database to what a reader may see. No other code enforces these restrictions."""
