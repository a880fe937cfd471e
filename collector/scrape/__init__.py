"""Engines' own /metrics, asked for every few seconds: for servers that nobody instruments."""
