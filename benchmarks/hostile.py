"""Measure the effect of hostile senders on memory, on other senders' delay, and on the time to
stop.

    python benchmarks/hostile.py

`tailspan up` runs without the explorer, with a token, on an empty SQLite database. The attacks come
from 127.0.0.2, and the other sender is 127.0.0.1. The exit status is 1 if a limit is exceeded.
"""

import gzip
import http.client
import os
import signal
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import grpc
from _ingest_sender import METHOD  # type: ignore[import-not-found]  # in this folder
from ingest import memory_mb  # type: ignore[import-not-found]
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tailspan_vllm import names

from collector.limits.sender_limits import MIB, CollectorLimits
from collector.normalise.otlp_envelope import MAX_PARTS
from collector.otlp.json_mapping import MAX_VALUES
from rig.program import Tailspan

TOKEN = "hostile-benchmark-token"
HOSTILE, INNOCENT = ("127.0.0.2", 0), ("127.0.0.1", 0)
BUDGET_MB = CollectorLimits().max_waiting_bytes / MIB
TRANSPORT_MB = 64
"""The transports' buffers in MB: 64 KiB for each of the 1,024 messages in flight."""
MAX_DELAY_S, MAX_STOP_S = 2.0, 10.0
PROTOBUF, JSON = "application/x-protobuf", "application/json"


class HostileResult(NamedTuple):
    """A result and its limit. Without a limit, the result is only printed."""

    what: str
    value: float
    bar: float | None
    unit: str

    def show(self) -> bool:
        """Print one line, and return whether the limit is met."""
        kept = self.bar is None or self.value <= self.bar
        bar = "" if self.bar is None else f"at most {self.bar:,.6g} {self.unit}"
        verdict = "" if self.bar is None else "ok" if kept else "MISSED"
        print(f"{self.what:<58} {self.value:>9,.2f} {self.unit:<4} {bar:<18} {verdict}", flush=True)
        return kept


def started(folder: Path) -> Tailspan:
    """Start Tailspan without the explorer, with a token."""
    tokens = folder / "tokens"
    tokens.write_text(TOKEN)
    database = f"--database=sqlite:///{folder / 'tailspan.db'}"
    return Tailspan(
        folder, "up", "--no-explorer", "--gpus=off", f"--token-file={tokens}", database
    ).is_up()


@contextmanager
def peak_mb(server: Tailspan) -> Iterator[Callable[[], float]]:
    """Yield a function that returns the largest increase of Tailspan's memory in MB."""
    before, highest, over = memory_mb(server.process.pid), [0.0], threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            highest[0] = max(highest[0], memory_mb(server.process.pid) - before)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield lambda: highest[0]
    finally:
        over.set()
        thread.join()


def post(
    server: Tailspan,
    body: bytes,
    kind: str,
    *,
    source: tuple[str, int],
    packed: bool = False,
) -> tuple[int | None, float]:
    """Send a message with the token.

    Return the status (None for a closed connection) and the seconds.
    """
    headers = {"Content-Type": kind, "Authorization": f"Bearer {TOKEN}"}
    if packed:
        headers["Content-Encoding"] = "gzip"
    connection = http.client.HTTPConnection(
        "127.0.0.1", server.port("http"), timeout=60, source_address=source
    )
    began = time.monotonic()
    try:
        connection.request("POST", "/v1/traces", body, headers)
        status: int | None = connection.getresponse().status
    except (OSError, http.client.HTTPException):
        status = None
    finally:
        connection.close()
    return status, time.monotonic() - began


def field(number: int, content: bytes) -> bytes:
    """A protobuf field that contains bytes."""
    length, digits = len(content), b""
    while length > 127:
        digits, length = digits + bytes([length & 127 | 128]), length >> 7
    return bytes([number << 3 | 2]) + digits + bytes([length]) + content


def costly_json() -> bytes:
    """A JSON message with as many values as the collector allows."""
    span = b'{"attributes":[{"key":"a","value":{"intValue":"1"}}]}'
    spans = b",".join([span] * (MAX_VALUES // 7))
    return b'{"resourceSpans":[{"scopeSpans":[{"spans":[' + spans + b"]}]}]}"


def costly_protobuf() -> bytes:
    """Return spans with as many attributes as the collector allows: 8 million attributes of two
    bytes."""
    span = field(2, b"\x4a\x00" * 1000)
    return field(1, field(2, span * (15 * MIB // len(span))))


def rows(count: int) -> bytes:
    """The smallest spans that become rows. Each call uses new ids."""
    now, spans = time.time_ns(), []
    for _ in range(count):
        span = Span(
            trace_id=os.urandom(16),
            span_id=os.urandom(8),
            start_time_unix_nano=now - 10**9,
            end_time_unix_nano=now,
        )
        for key, value in ((names.OUTCOME, "stop"), (names.BASIS, "http")):
            span.attributes.add(key=key).value.string_value = value
        spans.append(field(2, span.SerializeToString()))
    scope = field(1, field(1, names.SCOPE.encode()))
    return field(1, field(2, scope + b"".join(spans)))


def unauthenticated(server: Tailspan) -> list[HostileResult]:
    """Send 100 calls of 15 MiB on one connection without a token."""
    body, codes = bytes(15 * MIB), Counter[str]()
    with (
        peak_mb(server) as grown,
        grpc.insecure_channel(
            f"127.0.0.1:{server.port('grpc')}", options=[("grpc.max_send_message_length", -1)]
        ) as channel,
    ):
        export = channel.unary_unary(METHOD)
        for each in [export.future(body, timeout=30) for _ in range(100)]:
            error = each.exception()
            codes[error.code().name if isinstance(error, grpc.RpcError) else "OK"] += 1
    refused = codes["UNAUTHENTICATED"]
    return [
        HostileResult(
            "gRPC, 100 calls of 15 MiB without a token: memory", grown(), TRANSPORT_MB, "MB"
        ),
        HostileResult("  calls that were not refused as unauthenticated", 100 - refused, None, ""),
    ]


def stalled(server: Tailspan) -> list[HostileResult]:
    """Send 100 bodies of 15 MiB and 30 gzip bodies of 16 MiB that all stop before their end."""
    results = []
    bomb = gzip.compress(bytes(16 * MIB - 1))[:-4]
    for what, count, body, length, more in (
        ("HTTP, 100 bodies of 15 MiB that stall", 100, bytes(15 * MIB - 1), 15 * MIB, ""),
        (
            "HTTP, 30 gzip bodies of 16 MiB that stall",
            30,
            bomb,
            len(bomb) + 4,
            "Content-Encoding: gzip\r\n",
        ),
    ):
        head = (
            f"POST /v1/traces HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"
            f"Content-Type: {PROTOBUF}\r\nContent-Length: {length}\r\n{more}\r\n"
        ).encode()
        with ExitStack() as stack, peak_mb(server) as grown:
            for number in range(count):
                # One address may open only half of the connections that the collector allows.
                source = (f"127.0.0.{2 + number % 4}", 0)
                sender = stack.enter_context(
                    socket.create_connection(
                        ("127.0.0.1", server.port("http")), 1, source_address=source
                    )
                )
                with suppress(OSError):  # the connection is refused, or the server stops reading
                    sender.sendall(head + body)
            time.sleep(1)
        results.append(HostileResult(f"{what}: memory", grown(), BUDGET_MB + TRANSPORT_MB, "MB"))
    return results


def idle(server: Tailspan) -> list[HostileResult]:
    """Open 1,500 connections that send no data.

    Then send a health check, a scrape and a message from a different sender.
    """
    size = server.output.stat().st_size
    with ExitStack() as stack, peak_mb(server) as grown:
        for port, count in ((server.port("http"), 1000), (server.port("metrics"), 500)):
            for _ in range(count):
                with suppress(OSError):
                    stack.enter_context(
                        socket.create_connection(("127.0.0.1", port), 1, source_address=HOSTILE)
                    )
        slowest = 0.0
        for path in ("/healthz", "/metrics"):
            began = time.monotonic()
            connection = http.client.HTTPConnection("127.0.0.1", server.port("metrics"), timeout=30)
            connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
            assert connection.getresponse().status == 200
            connection.close()
            slowest = max(slowest, time.monotonic() - began)
        status, took = post(server, b"", PROTOBUF, source=INNOCENT)
        assert status == 200
        held = len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))
    grown_log = (server.output.stat().st_size - size) / 1024
    return [
        HostileResult("1,500 idle connections: memory", grown(), TRANSPORT_MB, "MB"),
        HostileResult("  descriptors open", held, None, ""),
        HostileResult("  log", grown_log, 64, "KiB"),
        HostileResult(
            "  health, a scrape or a message of another sender", max(slowest, took), 2, "s"
        ),
    ]


def delays(server: Tailspan, seconds: float) -> list[float]:
    """Send four messages per second from a different sender, with one row each. Return their
    durations."""
    found, ends = [], time.monotonic() + seconds
    while time.monotonic() < ends:
        status, took = post(server, rows(1), PROTOBUF, source=INNOCENT)
        assert status == 200, status
        found.append(took)
        time.sleep(0.25)
    return found


def delayed(server: Tailspan) -> list[HostileResult]:
    """Measure the delay of a different sender's messages, without and with a hostile sender."""
    alone = statistics.median(delays(server, 3))
    results = [HostileResult("Another sender's message alone: median", alone, None, "s")]
    for what, kind, body in (
        ("JSON", JSON, costly_json()),
        ("protobuf", PROTOBUF, costly_protobuf()),
        (f"{MAX_PARTS - 2:,} rows", PROTOBUF, rows(MAX_PARTS - 2)),
    ):
        packed, statuses, over = gzip.compress(body, 6), Counter[int | None](), threading.Event()

        def attack(
            packed: bytes, kind: str, over: threading.Event, statuses: Counter[int | None]
        ) -> None:
            while not over.is_set():
                statuses[post(server, packed, kind, source=HOSTILE, packed=True)[0]] += 1

        threads = [
            threading.Thread(target=attack, args=(packed, kind, over, statuses)) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        time.sleep(1)
        behind = delays(server, 8)
        over.set()
        for thread in threads:
            thread.join()
        size = len(packed) / 1024
        results += [
            HostileResult(
                f"  behind eight of {size:.0f} KiB of gzip {what}: longest",
                max(behind),
                MAX_DELAY_S,
                "s",
            ),
            HostileResult("    longest delay / median delay alone", max(behind) / alone, None, "x"),
        ]
    return results


def stopping(server: Tailspan) -> list[HostileResult]:
    """Send SIGTERM while eight slow messages are queued."""
    packed, statuses = gzip.compress(costly_protobuf(), 6), Counter[int | None]()

    def send() -> None:
        statuses[post(server, packed, PROTOBUF, source=HOSTILE, packed=True)[0]] += 1

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    began = time.monotonic()
    server.ends(signal.SIGTERM)
    took = time.monotonic() - began
    for thread in threads:
        thread.join()
    final = sum(count for status, count in statuses.items() if status not in (200, 413, 429, 503))
    return [
        HostileResult(
            "SIGTERM with eight costly messages queued: stopped after", took, MAX_STOP_S, "s"
        ),
        HostileResult("  messages without a final or retryable answer", final, 0, ""),
    ]


def main() -> None:
    """Run all attacks and print the results."""
    kept = True
    with (
        tempfile.TemporaryDirectory(prefix="tailspan-hostile-") as name,
        started(Path(name)) as server,
    ):
        print(f"Load average before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        print(f"Memory before: {memory_mb(server.process.pid):.0f} MB; budget {BUDGET_MB:.0f} MB")
        for attack in (unauthenticated, stalled, idle, delayed, stopping):
            for result in attack(server):
                kept &= result.show()
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
