"""Roles of readers, and the log of what they read."""
