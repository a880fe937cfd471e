"""Streams in the formats of the managed APIs, written from their public documentation."""

import json
from binascii import crc32
from struct import pack
from typing import Any, NamedTuple


class Part(NamedTuple):
    data: bytes
    after_s: float = 0.0


def sse(data: Any, name: str = "") -> bytes:
    text = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


def chat_chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return sse({"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice]})


CHAT = (
    Part(b": keep-alive\n\n"),
    Part(chat_chunk({"role": "assistant", "content": ""}), 0.02),
    Part(chat_chunk({"reasoning_content": "Let me"}), 0.03),
    Part(chat_chunk({"content": "one two"}), 0.03),
    Part(chat_chunk({"content": " three"}), 0.06),
    Part(chat_chunk({}, "stop")),
    Part(
        sse(
            {
                "id": "chatcmpl-1",
                "choices": [],
                "usage": {
                    "prompt_tokens": 30,
                    "completion_tokens": 9,
                    "prompt_tokens_details": {"cached_tokens": 16},
                    "completion_tokens_details": {"reasoning_tokens": 4},
                },
            }
        )
    ),
    Part(sse("[DONE]")),
)

COMPLETIONS = (
    Part(sse({"id": "cmpl-1", "choices": [{"index": 0, "text": "one", "finish_reason": None}]})),
    Part(
        sse({"id": "cmpl-1", "choices": [{"index": 0, "text": " two", "finish_reason": "length"}]})
    ),
    Part(
        sse(
            {
                "id": "cmpl-1",
                "choices": [],
                "usage": {"prompt_tokens": 30, "completion_tokens": 2},
            }
        )
    ),
    Part(sse("[DONE]")),
)


def responses_event(kind: str, **about: Any) -> bytes:
    return sse({"type": kind, **about}, kind)


RESPONSES = (
    Part(responses_event("response.created", response={"id": "resp_1", "status": "in_progress"})),
    Part(responses_event("response.reasoning_text.delta", delta="Let me")),
    Part(responses_event("response.output_text.delta", delta="one")),
    Part(responses_event("response.output_text.delta", delta=" two")),
    Part(
        responses_event(
            "response.incomplete",
            response={
                "id": "resp_1",
                "status": "incomplete",
                "incomplete_details": {"reason": "max_output_tokens"},
                "usage": {
                    "input_tokens": 30,
                    "input_tokens_details": {"cached_tokens": 0},
                    "output_tokens": 8,
                    "output_tokens_details": {"reasoning_tokens": 3},
                },
            },
        )
    ),
)


def anthropic_event(kind: str, **about: Any) -> bytes:
    return sse({"type": kind, **about}, kind)


ANTHROPIC = (
    Part(
        anthropic_event(
            "message_start",
            message={
                "id": "msg_1",
                "type": "message",
                "usage": {
                    "input_tokens": 10,
                    "cache_creation_input_tokens": 0,
                    "cache_read_input_tokens": 20,
                    "output_tokens": 1,
                },
            },
        )
    ),
    Part(anthropic_event("content_block_start", index=0, content_block={"type": "thinking"})),
    Part(anthropic_event("ping")),
    Part(
        anthropic_event(
            "content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "Let me"}
        )
    ),
    Part(
        anthropic_event("content_block_delta", index=1, delta={"type": "text_delta", "text": "one"})
    ),
    Part(anthropic_event("content_block_stop", index=1)),
    Part(
        anthropic_event(
            "message_delta", delta={"stop_reason": "max_tokens"}, usage={"output_tokens": 9}
        )
    ),
    Part(anthropic_event("message_stop")),
)


def gemini_chunk(parts: list[dict[str, Any]], finish: str | None = None) -> bytes:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    usage = {
        "promptTokenCount": 30,
        "candidatesTokenCount": 5,
        "thoughtsTokenCount": 4,
        "cachedContentTokenCount": 8,
    }
    return sse({"candidates": [candidate], "usageMetadata": usage, "responseId": "gem-1"})


GEMINI = (
    Part(gemini_chunk([{"text": "Let me", "thought": True}])),
    Part(gemini_chunk([{"text": "one two three"}])),
    Part(gemini_chunk([{"text": " four"}], "STOP")),
)


def aws_message(headers: dict[str, str], payload: dict[str, Any]) -> bytes:
    body = json.dumps(payload).encode()
    head = b"".join(
        pack("!B", len(name)) + name.encode() + b"\x07" + pack("!H", len(value)) + value.encode()
        for name, value in headers.items()
    )
    prelude = pack("!II", len(head) + len(body) + 16, len(head))
    checked = prelude + pack("!I", crc32(prelude)) + head + body
    return checked + pack("!I", crc32(checked))


def bedrock_event(kind: str, **about: Any) -> bytes:
    headers = {
        ":event-type": kind,
        ":content-type": "application/json",
        ":message-type": "event",
    }
    return aws_message(headers, about)


BEDROCK = (
    Part(bedrock_event("messageStart", role="assistant")),
    Part(
        bedrock_event(
            "contentBlockDelta",
            contentBlockIndex=0,
            delta={"reasoningContent": {"text": "Let me"}},
        )
    ),
    Part(bedrock_event("contentBlockDelta", contentBlockIndex=1, delta={"text": "one"})),
    Part(bedrock_event("contentBlockStop", contentBlockIndex=1)),
    Part(bedrock_event("messageStop", stopReason="end_turn")),
    Part(
        bedrock_event(
            "metadata",
            usage={
                "inputTokens": 10,
                "outputTokens": 9,
                "totalTokens": 39,
                "cacheReadInputTokens": 20,
                "cacheWriteInputTokens": 0,
            },
            metrics={"latencyMs": 40},
        )
    ),
)

STREAMS = {
    "openai-chat": CHAT,
    "openai-completions": COMPLETIONS,
    "openai-responses": RESPONSES,
    "anthropic-messages": ANTHROPIC,
    "bedrock": BEDROCK,
    "gemini": GEMINI,
}

PATHS = {
    "openai-chat": "/v1/chat/completions",
    "openai-completions": "/v1/completions",
    "openai-responses": "/v1/responses",
    "anthropic-messages": "/v1/messages",
    "bedrock": "/model/tiny/converse-stream",
    "gemini": "/v1beta/models/tiny:streamGenerateContent?alt=sse",
}

ERRORS_IN_STREAM = {
    "openai-chat": sse({"error": {"message": "out of memory", "type": "InternalServerError"}}),
    "openai-completions": sse({"object": "error", "message": "out of memory"}),
    "openai-responses": responses_event(
        "response.failed",
        response={"id": "resp_1", "error": {"code": "server_error", "message": "out of memory"}},
    ),
    "anthropic-messages": sse(
        {"type": "error", "error": {"type": "overloaded_error", "message": "out of memory"}},
        "error",
    ),
    "bedrock": aws_message(
        {
            ":exception-type": "modelStreamErrorException",
            ":content-type": "application/json",
            ":message-type": "exception",
        },
        {"message": "out of memory"},
    ),
    "gemini": sse({"error": {"code": 503, "message": "out of memory", "status": "UNAVAILABLE"}}),
}

REFUSALS = {
    "openai-chat": {"error": {"message": "too many requests", "type": "rate_limit_exceeded"}},
    "openai-completions": {"error": {"message": "too many requests", "type": "requests"}},
    "openai-responses": {"error": {"message": "too many requests", "code": "rate_limit_exceeded"}},
    "anthropic-messages": {
        "type": "error",
        "error": {"type": "rate_limit_error", "message": "too many requests"},
    },
    "bedrock": {"message": "too many requests"},
    "gemini": [
        {"error": {"code": 429, "message": "too many requests", "status": "RESOURCE_EXHAUSTED"}}
    ],
}
"""The body of a 429 in each protocol."""
