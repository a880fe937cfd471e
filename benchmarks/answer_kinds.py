"""Measure what the plugin costs per chunk of an event stream.

    python benchmarks/answer_kinds.py [--chunks 200000]

An application sends chunks of vLLM's chat completions directly, and then through the plugin's HTTP
layer. The cost is the difference in CPU time.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "instrumentation"))

from tailspan_vllm.front_end.capture import Capture
from tailspan_vllm.http import TimingMiddleware
from tailspan_vllm.settings import settings_from

ROUNDS = 9
PATH = "/v1/chat/completions"
START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/event-stream; charset=utf-8")],
}


def chunk(**delta: Any) -> bytes:
    """An event as vLLM sends it."""
    body = {
        "id": "chatcmpl-8b84626539c86e03a1b2c3d4e5f60718",
        "object": "chat.completion.chunk",
        "created": 1_790_000_000,
        "model": "Qwen/Qwen3-32B",
        "choices": [
            {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None, "token_ids": None}
        ],
    }
    return f"data: {json.dumps(body, separators=(',', ':'))}\n\n".encode()


def stream(capture: Capture, bodies: list[bytes], *, counted: bool) -> Any:
    """An application that makes one request to the engine and sends these chunks."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        flight = capture.flight_began(None)
        flight.stats = SimpleNamespace(num_generation_tokens=1) if counted else None
        await send(START)
        messages = [
            {"type": "http.response.body", "body": body, "more_body": True} for body in bodies
        ]
        begin = time.thread_time()
        for message in messages:
            await send(message)
        scope["took_s"] = time.thread_time() - begin

    return application


async def took_s(application: Any) -> float:
    """The CPU seconds in which the application sent its chunks."""

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        pass

    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": PATH, "headers": []}
    await application(scope, receive, send)
    return float(scope["took_s"])


def cost_ns(bodies: list[bytes], *, counted: bool = True) -> float:
    """The plugin's cost per chunk, in nanoseconds."""
    capture = Capture(settings_from({"OTEL_SDK_DISABLED": "true"}))
    bare = stream(capture, bodies, counted=counted)
    differences = []
    for _ in range(ROUNDS):
        alone_s = asyncio.run(took_s(bare))
        timed_s = asyncio.run(took_s(TimingMiddleware(bare, capture)))
        differences.append((timed_s - alone_s) / len(bodies) * 1e9)
    return statistics.median(differences)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=200_000, help="chunks per round")
    chunks = parser.parse_args().chunks
    content, reasoning = chunk(content=" answer"), chunk(reasoning=" thought")
    call = chunk(tool_calls=[{"index": 0, "function": {"arguments": '{"city": "'}}])
    print(f"a chunk has {len(content)} bytes; {chunks:,} chunks per round; median of {ROUNDS}")
    for name, bodies, counted in (
        ("content", [content] * chunks, True),
        ("reasoning, before any content", [reasoning] * chunks, True),
        ("tool calls, before any content", [call] * chunks, True),
        ("content and reasoning alternating", [reasoning, content] * (chunks // 2), True),
        ("content, search ended (n=2)", [content] * chunks, False),
        ("content, 100 kB per chunk", [chunk(content="x" * 100_000)] * (chunks // 100), True),
    ):
        print(f"{name:33} {cost_ns(bodies, counted=counted):9.0f} ns per chunk")


if __name__ == "__main__":
    main()
