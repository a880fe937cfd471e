"""Read the collector's addresses, which the explorer shows in its instructions. `tailspan up` sets
these environment variables."""

from collections.abc import Mapping
from typing import Final

GRPC_KEY: Final = "TAILSPAN_GRPC_PORT"
HTTP_KEY: Final = "TAILSPAN_HTTP_PORT"
SCHEME_KEY: Final = "TAILSPAN_OTLP_SCHEME"
"""The variable with the scheme of the two addresses, http or https."""
_DEFAULTS: Final = {GRPC_KEY: 4317, HTTP_KEY: 4318}


def otlp_url(key: str, environ: Mapping[str, str]) -> str:
    """The collector's address, with HOST in place of the host. `key` is `GRPC_KEY` or
    `HTTP_KEY`."""
    text = environ.get(key, "")
    port = int(text) if text.isascii() and text.isdecimal() else _DEFAULTS[key]
    return f"{environ.get(SCHEME_KEY, 'http')}://HOST:{port}"
