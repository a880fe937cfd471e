"""Listen for HTTP: ASGI server, connections, time limits, TLS, tokens, Host checks."""
