"""The interface of a protocol: build a request, read an event."""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from typing import Protocol as Interface

from probe.answer import ProbeAnswer
from probe.http_exchange import HttpRequest
from probe.plan import Endpoint
from probe.server_sent_events import Event, ServerSentEvents

Headers = tuple[tuple[str, str], ...]


class Decoder(Interface):
    """Decodes a stream from bytes."""

    def feed(self, received: bytes) -> list[Event]:
        """Return the events that these bytes complete."""


class Protocol(NamedTuple):
    """The functions to probe an endpoint with this protocol.

    `build` takes the endpoint, the prompt, and the API key or None. `read` adds an event to an
    answer. The second argument of `read` is the event loop's time at which the event arrived.
    """

    build: Callable[[Endpoint, str, str | None], HttpRequest]
    read: Callable[[Event, float, ProbeAnswer], None]
    decoder: Callable[[], Decoder] = ServerSentEvents


def with_path(url: str, path: str, *, version: str = "") -> str:
    """Return the URL of an API method: the base address, followed by the path of the method.

    If the base address already ends with the path or the version, do not repeat it.

    Args:
        path: such as `/chat/completions`.
        version: such as `/v1`; inserted before `path` if the base address has no path.
    """
    base = url.rstrip("/")
    if base.endswith(path):
        return base
    bare = "/" not in base.partition("://")[2]
    return f"{base}{version if bare else ''}{path}"


def json_request(url: str, headers: Headers, body: Mapping[str, Any]) -> HttpRequest:
    """Return a request with a JSON body."""
    return HttpRequest(
        url, (("Content-Type", "application/json"), *headers), json.dumps(body).encode()
    )


def bearer(key: str | None) -> Headers:
    """Return the header with a bearer token."""
    return () if key is None else (("Authorization", f"Bearer {key}"),)
