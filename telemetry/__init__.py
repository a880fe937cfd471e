"""Defines the data types that all modules share. Pure: no clock, no socket, no SQL."""
