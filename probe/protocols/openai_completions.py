"""OpenAI completions. Source: OpenAI API reference, "Completions"."""

from probe.answer import ProbeAnswer, first_of, text_of
from probe.http_exchange import HttpRequest
from probe.plan import Endpoint
from probe.protocols.openai_chat import finished, opened
from probe.protocols.protocol import bearer, json_request, with_path
from probe.server_sent_events import Event


def build(endpoint: Endpoint, prompt: str, key: str | None) -> HttpRequest:
    """The request for a prompt."""
    body = {
        "model": endpoint.model,
        "prompt": prompt,
        "max_tokens": endpoint.max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    url = with_path(endpoint.url, "/completions", version="/v1")
    return json_request(url, bearer(key), body)


def read(event: Event, at: float, answer: ProbeAnswer) -> None:
    """Add an event to an answer."""
    data = opened(event, answer)
    if data is None:
        return
    choice = first_of(data.get("choices"))
    if text_of(choice.get("text")):
        answer.content(at)
    finished(choice, answer)
