"""OpenAI chat completions. vLLM, SGLang, Groq, Cerebras and other servers also offer this API.

Sources: OpenAI API reference, "Chat completions", "Streaming"; vLLM, "Reasoning outputs"
(`reasoning`; before 0.12 `reasoning_content`), and `metrics` with `--enable-per-request-metrics`.
"""

from collections.abc import Mapping
from typing import Any, Final

from probe.answer import (
    ProbeAnswer,
    count_of,
    first_of,
    mapping_of,
    seconds_of_ms,
    stream_error,
    text_of,
)
from probe.http_exchange import HttpRequest
from probe.plan import Endpoint
from probe.protocols.protocol import bearer, json_request, with_path
from probe.server_sent_events import Event

END: Final = "[DONE]"


def build(endpoint: Endpoint, prompt: str, key: str | None) -> HttpRequest:
    """The request for a prompt."""
    body = {
        "model": endpoint.model,
        "messages": [{"role": "user", "content": prompt}],
        # OpenAI's reasoning models refuse the older `max_tokens`.
        "max_completion_tokens": endpoint.max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    url = with_path(endpoint.url, "/chat/completions", version="/v1")
    return json_request(url, bearer(key), body)


def read(event: Event, at: float, answer: ProbeAnswer) -> None:
    """Add an event to an answer."""
    data = opened(event, answer)
    if data is None:
        return
    choice = first_of(data.get("choices"))
    delta = mapping_of(choice.get("delta"))
    if text_of(delta.get("reasoning")) or text_of(delta.get("reasoning_content")):
        answer.reasoning(at)
    if text_of(delta.get("content")) or text_of(delta.get("refusal")) or delta.get("tool_calls"):
        answer.content(at)
    finished(choice, answer)


def opened(event: Event, answer: ProbeAnswer) -> dict[str, Any] | None:
    """The data of a chat or completions event, or None if it is the last event.

    Raises:
        ProbeFailure: the event is an error, or is not a JSON object.
    """
    if event.text == END:
        answer.complete = answer.finish is not None
        return None
    data = event.data
    if event.name == "error" or data is None or data.get("error") or data.get("object") == "error":
        raise stream_error((data or {}).get("error") or data or event.text)
    answer.response_id = answer.response_id or text_of(data.get("id"))
    if isinstance(data.get("usage"), dict):
        read_usage(data["usage"], answer)
    if isinstance(data.get("metrics"), dict):
        read_metrics(data["metrics"], answer)
    return data


def finished(choice: Mapping[str, object], answer: ProbeAnswer) -> None:
    """Store the reason why the answer ended."""
    if reason := text_of(choice.get("finish_reason")):
        answer.finish = "length" if reason == "length" else "stop"


def read_usage(usage: Mapping[str, object], answer: ProbeAnswer) -> None:
    """Store the numbers of tokens."""
    answer.prompt_tokens = count_of(usage.get("prompt_tokens"))
    answer.output_tokens = count_of(usage.get("completion_tokens"))
    prompt = mapping_of(usage.get("prompt_tokens_details"))
    output = mapping_of(usage.get("completion_tokens_details"))
    answer.cached_tokens = count_of(prompt.get("cached_tokens"))
    answer.reasoning_tokens = count_of(output.get("reasoning_tokens"))


def read_metrics(metrics: Mapping[str, object], answer: ProbeAnswer) -> None:
    """Store the durations that vLLM measured. `time_to_first_token_ms` is stored as the time of the
    prefill, because vLLM measures it from the scheduling of the request."""
    answer.server_queue_s = seconds_of_ms(metrics.get("queue_time_ms"))
    answer.server_prefill_s = seconds_of_ms(metrics.get("time_to_first_token_ms"))
    answer.server_decode_s = seconds_of_ms(metrics.get("generation_time_ms"))
