"""The collector's addresses, which the explorer shows in its instructions."""

from collections.abc import Mapping
from typing import Final

GRPC_KEY: Final = "TAILSPAN_GRPC_PORT"
"""The environment variable with the port for OTLP over gRPC. `tailspan up` sets it for the
explorer."""
HTTP_KEY: Final = "TAILSPAN_HTTP_PORT"
"""The environment variable with the port for OTLP over HTTP. `tailspan up` sets it for the
explorer."""
SCHEME_KEY: Final = "TAILSPAN_OTLP_SCHEME"
"""The environment variable with the scheme (http or https) of the gRPC and the HTTP address.
`tailspan up` sets it for the explorer."""
_DEFAULTS: Final = {GRPC_KEY: 4317, HTTP_KEY: 4318}


def otlp_url(key: str, environ: Mapping[str, str]) -> str:
    """Return the collector's address, with HOST in place of the host.

    Args:
        key: `GRPC_KEY` or `HTTP_KEY`.
        environ: the environment. If `tailspan up` did not start the explorer, the variables are
            missing, and the default scheme and port are used.
    """
    text = environ.get(key, "")
    port = int(text) if text.isascii() and text.isdecimal() else _DEFAULTS[key]
    return f"{environ.get(SCHEME_KEY, 'http')}://HOST:{port}"
