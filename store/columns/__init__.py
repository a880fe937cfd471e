"""Reads many rows as columns, through ADBC if it is installed, and caches them."""
