"""A load client for an OpenAI-compatible server.

Each request has its own traceparent, by which Tailspan's row of the request can be found.

    python -m rig.load --port 8000 --requests 60 --concurrency 8
"""

import argparse
import http.client
import json
import random
import secrets
import socket
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

TIMEOUT_S = 120


@dataclass(frozen=True, slots=True)
class Call:
    """A request to send, and when to abort it."""

    chat: bool = True
    stream: bool = True
    prompt: str = "hello"
    max_tokens: int = 32
    abort_after_chunks: int | None = None
    abort_after_s: float | None = None
    read_bytes_per_s: float | None = None
    """Speed at which the client reads the response, or None for no limit."""
    model: str = "tiny"
    headers: dict[str, str] = field(default_factory=dict)
    body: dict[str, Any] = field(default_factory=dict)
    begun: threading.Event | None = None
    """This event is set when the first byte of the response arrives."""


@dataclass(frozen=True, slots=True)
class Timed:
    """The client's timestamps. `ttft_s` is None if there was no response. `cut` means that a
    stream ended before it was complete."""

    call: Call
    trace_id: str
    status: int | None
    request_id: str | None
    ttft_s: float | None
    e2e_s: float
    aborted: bool
    cut: bool = False


def send(port: int, call: Call) -> Timed:
    """Send one request and read its response. Abort the request if the call requires it."""
    trace_id = secrets.token_hex(16)
    body: dict[str, Any] = {
        "model": call.model,
        "max_tokens": call.max_tokens,
        "ignore_eos": True,
        "stream": call.stream,
        **call.body,
    }
    if call.chat:
        body.setdefault("messages", [{"role": "user", "content": call.prompt}])
    else:
        body.setdefault("prompt", call.prompt)
    headers = {
        "content-type": "application/json",
        "traceparent": f"00-{trace_id}-{secrets.token_hex(8)}-01",
        **call.headers,
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    if call.read_bytes_per_s is None:
        connection.connect()
    else:
        connection.sock = _narrow(port)
    path = "/v1/chat/completions" if call.chat else "/v1/completions"
    text = json.dumps(body)
    status, ttft_s, aborted, received = None, None, False, b""
    begun = time.monotonic()
    try:
        connection.request("POST", path, text, headers)
        if call.abort_after_s is not None:
            time.sleep(call.abort_after_s)
            aborted = True
        else:
            answer = connection.getresponse()
            status = answer.status
            received = answer.read(1)
            ttft_s = time.monotonic() - begun
            if call.begun is not None:
                call.begun.set()
            chunks = 0
            for line in answer:
                if call.read_bytes_per_s is not None:
                    time.sleep(len(line) / call.read_bytes_per_s)
                received += line
                chunks += line.startswith(b"data:")
                if call.abort_after_chunks is not None and chunks >= call.abort_after_chunks:
                    aborted = True
                    break
    finally:
        e2e_s = time.monotonic() - begun
        connection.close()
    # http.client does not report that the connection of a stream ended too early.
    cut = call.stream and status == 200 and not aborted and b"[DONE]" not in received
    return Timed(call, trace_id, status, _id_of(received), ttft_s, e2e_s, aborted, cut)


def _narrow(port: int) -> socket.socket:
    """Open a connection with small buffers, so that the server must wait for a slow client."""
    narrow = socket.socket()
    narrow.settimeout(TIMEOUT_S)
    narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    narrow.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
    narrow.connect(("127.0.0.1", port))
    return narrow


def send_all(port: int, calls: Sequence[Call], concurrency: int) -> list[Timed]:
    """Send the calls in order, at most `concurrency` at the same time."""
    with ThreadPoolExecutor(concurrency) as pool:
        return list(pool.map(lambda call: send(port, call), calls))


def mixed(count: int, seed: int = 0) -> list[Call]:
    """Chats and completions of different lengths, with and without streaming."""
    draw = random.Random(seed)
    return [
        Call(
            chat=index % 2 == 0,
            stream=index % 4 < 2,
            prompt="".join(draw.choices("abcdefgh ", k=draw.randint(5, 600))),
            max_tokens=draw.randint(2, 64),
            headers={"x-tenant-id": f"tenant-{index % 3}"},
        )
        for index in range(count)
    ]


def _id_of(received: bytes) -> str | None:
    start = received.find(b'"id":"')
    return received[start + 6 : received.find(b'"', start + 6)].decode() if start >= 0 else None


def main(arguments: Sequence[str]) -> int:
    """Send a mixed load and print the measured latencies."""
    parser = argparse.ArgumentParser(prog="python -m rig.load", description=__doc__)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--concurrency", type=int, default=8)
    options = parser.parse_args(arguments)
    begun = time.monotonic()
    seen = send_all(options.port, mixed(options.requests), options.concurrency)
    took_s = time.monotonic() - begun
    e2e_s = sorted(timed.e2e_s for timed in seen)
    print(
        f"{len(seen)} requests in {took_s:.1f} s ({len(seen) / took_s:.1f}/s), "
        f"{sum(timed.status == 200 for timed in seen)} answered, "
        f"E2E p50 {e2e_s[len(e2e_s) // 2] * 1e3:.0f} ms, max {e2e_s[-1] * 1e3:.0f} ms"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
