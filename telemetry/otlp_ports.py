"""The collector's ports, which the explorer shows in its instructions."""

from collections.abc import Mapping
from typing import Final

GRPC_KEY: Final = "TAILSPAN_GRPC_PORT"
"""The environment variable with the port for OTLP over gRPC. `tailspan up` sets it for the
explorer."""
HTTP_KEY: Final = "TAILSPAN_HTTP_PORT"
"""The environment variable with the port for OTLP over HTTP. `tailspan up` sets it for the
explorer."""
_DEFAULTS: Final = {GRPC_KEY: 4317, HTTP_KEY: 4318}


def otlp_port(key: str, environ: Mapping[str, str]) -> int:
    """Return the port in the environment, or the default if the explorer runs alone."""
    text = environ.get(key, "")
    return int(text) if text.isascii() and text.isdecimal() else _DEFAULTS[key]
