"""Limits for each sender and for all senders together: rates, memory, CPU time for reading."""
