"""The Gemini API, and Gemini on Vertex AI (`aiplatform.googleapis.com`). Vertex AI needs OAuth
tokens.

Sources: Gemini API reference, "models.streamGenerateContent"; Vertex AI reference,
"projects.locations.publishers.models.streamGenerateContent".
"""

from typing import Any, Final
from urllib.parse import quote, urlsplit

from probe.answer import ProbeAnswer, count_of, first_of, mapping_of, stream_error, text_of
from probe.errors import ProbeFailure
from probe.http_exchange import HttpRequest
from probe.plan import Endpoint
from probe.protocols.protocol import Headers, bearer, json_request
from probe.server_sent_events import Event

METHOD: Final = ":streamGenerateContent"
_VERTEX: Final = "aiplatform.googleapis.com"


def build(endpoint: Endpoint, prompt: str, key: str | None) -> HttpRequest:
    """The request for a prompt."""
    body = {
        "contents": [{"role": "user", "parts": [{"text": prompt}]}],
        "generationConfig": {"maxOutputTokens": endpoint.max_tokens},
    }
    headers: Headers = () if key is None else (("x-goog-api-key", key),)
    if (urlsplit(endpoint.url).hostname or "").endswith(_VERTEX):
        headers = bearer(key)
    return json_request(_url(endpoint), headers, body)


def _url(endpoint: Endpoint) -> str:
    base = endpoint.url.rstrip("/")
    if not base.endswith(METHOD):
        bare = "/" not in base.partition("://")[2]
        models = "" if base.endswith("/models") else "/models"
        base = f"{base}{'/v1beta' if bare else ''}{models}/{quote(endpoint.model, safe='')}{METHOD}"
    return f"{base}?alt=sse"


def read(event: Event, at: float, answer: ProbeAnswer) -> None:
    """Add an event to an answer. An answer is complete when it has a finish reason, because the
    stream has no special last event."""
    data = event.data
    if event.name == "error" or data is None or data.get("error"):
        raise stream_error((data or {}).get("error") or event.text)
    answer.response_id = answer.response_id or text_of(data.get("responseId"))
    blocked = text_of(mapping_of(data.get("promptFeedback")).get("blockReason"))
    if blocked:
        raise ProbeFailure("stream_error", f"the prompt was blocked: {blocked}")
    candidate = first_of(data.get("candidates"))
    _parts(mapping_of(candidate.get("content")).get("parts"), at, answer)
    if reason := text_of(candidate.get("finishReason")):
        answer.finish = "length" if reason == "MAX_TOKENS" else "stop"
        answer.complete = True
    if isinstance(data.get("usageMetadata"), dict):
        _usage(data["usageMetadata"], answer)


def _parts(parts: object, at: float, answer: ProbeAnswer) -> None:
    """Add at most one chunk of reasoning and one chunk of content. A part may have many tokens."""
    given = [mapping_of(each) for each in parts] if isinstance(parts, list) else []
    full = [each for each in given if text_of(each.get("text")) or each.get("functionCall")]
    if any(each.get("thought") is True for each in full):
        answer.reasoning(at)
    if any(each.get("thought") is not True for each in full):
        answer.content(at)


def _usage(usage: dict[str, Any], answer: ProbeAnswer) -> None:
    """The usage of an answer. `candidatesTokenCount` excludes thoughts (reasoning tokens)."""
    answer.prompt_tokens = count_of(usage.get("promptTokenCount"))
    answer.cached_tokens = count_of(usage.get("cachedContentTokenCount"))
    thoughts = count_of(usage.get("thoughtsTokenCount"))
    content = count_of(usage.get("candidatesTokenCount"))
    answer.reasoning_tokens = thoughts
    if content is not None or thoughts is not None:
        answer.output_tokens = count_of((content or 0) + (thoughts or 0))
