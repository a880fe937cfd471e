"""Servers' listening code: ASGI server, connections, time limits, TLS, tokens, Host checks."""
