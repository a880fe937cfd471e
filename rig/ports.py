"""Find free ports."""

import socket


def free_port() -> int:
    """A port that is currently free on the loopback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
