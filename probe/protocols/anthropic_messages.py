"""Anthropic messages. Source: Anthropic API reference, "Messages", "Streaming messages"."""

from collections.abc import Mapping
from typing import Final

from probe.answer import ProbeAnswer, count_of, mapping_of, stream_error, text_of
from probe.http_exchange import HttpRequest
from probe.plan import Endpoint
from probe.protocols.protocol import json_request, with_path
from probe.server_sent_events import Event

VERSION: Final = "2023-06-01"


def build(endpoint: Endpoint, prompt: str, key: str | None) -> HttpRequest:
    """The request for a prompt."""
    body = {
        "model": endpoint.model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": endpoint.max_tokens,
        "stream": True,
    }
    headers = (("anthropic-version", VERSION), *((("x-api-key", key),) if key else ()))
    return json_request(with_path(endpoint.url, "/messages", version="/v1"), headers, body)


def read(event: Event, at: float, answer: ProbeAnswer) -> None:
    """Add an event to an answer."""
    data = event.data
    kind = event.name if data is None else text_of(data.get("type")) or event.name
    if data is None or kind == "error":
        raise stream_error((data or {}).get("error") or event.text)
    if kind == "message_start":
        message = mapping_of(data.get("message"))
        answer.response_id = text_of(message.get("id"))
        _prompt_usage(mapping_of(message.get("usage")), answer)
    elif kind == "content_block_delta":
        delta = mapping_of(data.get("delta"))
        if text_of(delta.get("thinking")):
            answer.reasoning(at)
        elif text_of(delta.get("text")) or text_of(delta.get("partial_json")):
            answer.content(at)
    elif kind == "message_delta":
        if reason := text_of(mapping_of(data.get("delta")).get("stop_reason")):
            answer.finish = "length" if reason == "max_tokens" else "stop"
        output = count_of(mapping_of(data.get("usage")).get("output_tokens"))
        answer.output_tokens = answer.output_tokens if output is None else output
    elif kind == "message_stop":
        answer.complete = answer.finish is not None


def _prompt_usage(usage: Mapping[str, object], answer: ProbeAnswer) -> None:
    """The usage of the prompt. `input_tokens` excludes cached tokens."""
    read_tokens = count_of(usage.get("cache_read_input_tokens"))
    written = count_of(usage.get("cache_creation_input_tokens"))
    rest = count_of(usage.get("input_tokens"))
    if rest is not None:
        answer.prompt_tokens = count_of(rest + (read_tokens or 0) + (written or 0))
    answer.cached_tokens = read_tokens
