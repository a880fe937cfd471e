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
    adds an event to an answer, and takes the event loop's time at which the event arrived."""

    build: Callable[[Endpoint, str, str | None], HttpRequest]
    read: Callable[[Event, float, ProbeAnswer], None]
    decoder: Callable[[], Decoder] = ServerSentEvents


def with_path(url: str, path: str, *, version: str = "") -> str:
    """The base address followed by a method's path, such as `/chat/completions`.

    If the address already ends in the path, it is returned unchanged. If the address has no path,
    `version`, such as `/v1`, is inserted.
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
