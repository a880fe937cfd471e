"""Stores and reads engine starts; finds replicas that hang, share a name or have a wrong clock."""
