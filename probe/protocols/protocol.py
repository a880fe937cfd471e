"""The interface of a protocol."""

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
        """The events that these bytes complete."""


class Protocol(NamedTuple):
    """The functions of a protocol. `build` takes the endpoint, the prompt and the API key. `read`
    adds an event and the event loop's time of its arrival to an answer."""

    build: Callable[[Endpoint, str, str | None], HttpRequest]
    read: Callable[[Event, float, ProbeAnswer], None]
    decoder: Callable[[], Decoder] = ServerSentEvents


def with_path(url: str, path: str, *, version: str = "") -> str:
    """The base address followed by a method's path, such as `/chat/completions`.

    A path or version that the address already has is not repeated. `version`, such as `/v1`, is
    inserted if the address has no path.
    """
    base = url.rstrip("/")
    if base.endswith(path):
        return base
    bare = "/" not in base.partition("://")[2]
    return f"{base}{version if bare else ''}{path}"


def json_request(url: str, headers: Headers, body: Mapping[str, Any]) -> HttpRequest:
    """A request with a JSON body."""
    return HttpRequest(
        url, (("Content-Type", "application/json"), *headers), json.dumps(body).encode()
    )


def bearer(key: str | None) -> Headers:
    """The header with a bearer token."""
    return () if key is None else (("Authorization", f"Bearer {key}"),)
