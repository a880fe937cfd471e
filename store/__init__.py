"""Stores requests and samples in SQL. Rows are written as dataclasses and read as Arrow tables."""
