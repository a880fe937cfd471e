"""Metrics of Tailspan itself: tasks, scrapes, GPU readers, clocks."""
