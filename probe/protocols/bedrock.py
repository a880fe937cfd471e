"""Amazon Bedrock's ConverseStream. botocore signs the request and decodes the stream.

A key is a Bedrock API key (a bearer token). Without a key, botocore looks for credentials in the
environment, a profile or the container's role. Sources: Amazon Bedrock API reference,
"ConverseStream"; AWS, "Event stream encoding".
"""

import json
import os
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final
from urllib.parse import quote, urlsplit

from probe.answer import ProbeAnswer, count_of, mapping_of, text_of
from probe.errors import ProbeFailure
from probe.http_exchange import HttpRequest
from probe.plan import Endpoint
from probe.protocols.protocol import Headers, bearer
from probe.server_sent_events import Event, event_of
from telemetry.printable import printable

SERVICE: Final = "bedrock"
_REGION: Final = re.compile(r"\.([a-z]{2}(?:-[a-z]+)+-\d)\.")


def build(endpoint: Endpoint, prompt: str, key: str | None) -> HttpRequest:
    """The signed request for a prompt.

    Raises:
        ProbeFailure: there are no credentials, or no AWS region.
    """
    body = json.dumps(
        {
            "messages": [{"role": "user", "content": [{"text": prompt}]}],
            "inferenceConfig": {"maxTokens": endpoint.max_tokens},
        }
    ).encode()
    url = f"{endpoint.url.rstrip('/')}/model/{quote(endpoint.model, safe='')}/converse-stream"
    plain: Headers = (("Content-Type", "application/json"),)
    if key is not None:
        return HttpRequest(url, (*plain, *bearer(key)), body)
    return HttpRequest(url, _signed(url, plain, body), body)


def _signed(url: str, headers: Headers, body: bytes) -> Headers:
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest

    request = AWSRequest("POST", url, headers=dict(headers), data=body)
    SigV4Auth(_credentials(), SERVICE, _region(url)).add_auth(request)
    return tuple((name, value) for name, value in request.headers.items())


def _region(url: str) -> str:
    found = _REGION.search(urlsplit(url).hostname or "")
    region = found[1] if found else os.environ.get("AWS_REGION")
    if not region:
        raise ProbeFailure(
            "key", "the AWS region is unknown; allowed: a url with a region, or AWS_REGION"
        )
    return region


def _credentials() -> Any:
    from botocore.exceptions import BotoCoreError

    try:
        found = _session().get_credentials()
        if found is not None:
            return found.get_frozen_credentials()  # may ask for new credentials over the network
    except BotoCoreError as error:
        raise ProbeFailure("key", f"no AWS credentials: {printable(str(error), 120)}") from error
    raise ProbeFailure(
        "key",
        "no AWS credentials; allowed: the sources of botocore, such as AWS_ACCESS_KEY_ID"
        " and AWS_SECRET_ACCESS_KEY, a profile or a role, or key_env with a Bedrock API key",
    )


@cache
def _session() -> Any:
    """The botocore session. It refreshes temporary credentials itself."""
    from botocore.session import Session

    return Session()


class EventStream:
    """Decodes the binary event stream of AWS."""

    def __init__(self) -> None:
        from botocore.eventstream import EventStreamBuffer

        self._buffer = EventStreamBuffer()

    def feed(self, received: bytes) -> list[Event]:
        """The events that these bytes complete.

        Raises:
            ProbeFailure: a checksum is wrong, or a message is too large.
        """
        from botocore.eventstream import ParserError

        self._buffer.add_data(received)
        try:
            return list(self._events())
        except ParserError as error:
            raise ProbeFailure("stream", f"the event stream is malformed: {error}") from error

    def _events(self) -> Iterator[Event]:
        for message in self._buffer:
            headers = message.headers
            kind = headers.get(":message-type")
            if kind in ("exception", "error"):
                name = headers.get(":exception-type") or headers.get(":error-code") or "error"
                payload = event_of("", message.payload)
                about = text_of((payload.data or {}).get("message")) or text_of(
                    headers.get(":error-message")
                )
                raise ProbeFailure(
                    "stream_error",
                    f"the stream contained an error: {name}: {about or 'without a message'}",
                )
            yield event_of(str(headers.get(":event-type", "")), message.payload)


def decoder() -> EventStream:
    """A new decoder."""
    return EventStream()


def read(event: Event, at: float, answer: ProbeAnswer) -> None:
    """Add an event to an answer."""
    data = event.data or {}
    if event.name == "contentBlockDelta":
        delta = mapping_of(data.get("delta"))
        if text_of(mapping_of(delta.get("reasoningContent")).get("text")):
            answer.reasoning(at)
        elif text_of(delta.get("text")) or delta.get("toolUse"):
            answer.content(at)
    elif event.name == "messageStop":
        answer.finish = "length" if data.get("stopReason") == "max_tokens" else "stop"
        answer.complete = True
    elif event.name == "metadata":
        usage = mapping_of(data.get("usage"))
        read_tokens = count_of(usage.get("cacheReadInputTokens"))
        written = count_of(usage.get("cacheWriteInputTokens"))
        rest = count_of(usage.get("inputTokens"))
        if rest is not None:
            # Bedrock's `inputTokens` excludes cached tokens.
            answer.prompt_tokens = count_of(rest + (read_tokens or 0) + (written or 0))
        answer.cached_tokens = read_tokens
        answer.output_tokens = count_of(usage.get("outputTokens"))
