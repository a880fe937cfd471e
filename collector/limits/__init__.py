"""Limits that all senders share: rates, memory, CPU time for reading."""
