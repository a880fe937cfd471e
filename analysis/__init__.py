"""Queries that commands, pages and alerts share.

Each function reads the store and returns a result object.
"""
