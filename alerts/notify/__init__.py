"""Notifications of incidents: messages, channels, delivery."""
