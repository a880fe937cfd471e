"""Restrict a database to what a reader may see. Access is restricted only in this package."""
