"""OpenAI responses. Source: OpenAI API reference, "Responses", "Streaming events"."""

from collections.abc import Mapping
from typing import Final

from probe.answer import ProbeAnswer, count_of, mapping_of, stream_error, text_of
from probe.http_exchange import HttpRequest
from probe.plan import Endpoint
from probe.protocols.protocol import bearer, json_request, with_path
from probe.server_sent_events import Event

REASONING: Final = ("response.reasoning_text.delta", "response.reasoning_summary_text.delta")
CONTENT: Final = (
    "response.output_text.delta",
    "response.refusal.delta",
    "response.function_call_arguments.delta",
)
ENDS: Final = ("response.completed", "response.incomplete")


def build(endpoint: Endpoint, prompt: str, key: str | None) -> HttpRequest:
    """The request for a prompt. It requests that OpenAI does not store the answer."""
    body = {
        "model": endpoint.model,
        "input": prompt,
        "max_output_tokens": endpoint.max_tokens,
        "store": False,
        "stream": True,
    }
    url = with_path(endpoint.url, "/responses", version="/v1")
    return json_request(url, bearer(key), body)


def read(event: Event, at: float, answer: ProbeAnswer) -> None:
    """Add an event to an answer."""
    if event.text == "[DONE]":  # some servers end the stream with it
        return
    data = event.data or {}
    kind = text_of(data.get("type")) or event.name
    response = mapping_of(data.get("response"))
    if event.data is None or kind == "error" or data.get("error"):
        raise stream_error(data.get("error") or event.data or event.text)
    if kind == "response.failed":
        raise stream_error(response.get("error"))
    answer.response_id = answer.response_id or text_of(response.get("id"))
    if kind in REASONING and text_of(data.get("delta")):
        answer.reasoning(at)
    elif kind in CONTENT and text_of(data.get("delta")):
        answer.content(at)
    elif kind in ENDS:
        _end(response, answer)


def _end(response: Mapping[str, object], answer: ProbeAnswer) -> None:
    answer.finish = "stop" if response.get("status") == "completed" else "length"
    answer.complete = True
    usage = mapping_of(response.get("usage"))
    answer.prompt_tokens = count_of(usage.get("input_tokens"))
    answer.output_tokens = count_of(usage.get("output_tokens"))
    prompt = mapping_of(usage.get("input_tokens_details"))
    output = mapping_of(usage.get("output_tokens_details"))
    answer.cached_tokens = count_of(prompt.get("cached_tokens"))
    answer.reasoning_tokens = count_of(output.get("reasoning_tokens"))
