"""Limits that all senders share: rates, memory, reading time."""
