"""A proxy in front of a prefill server and a decode server, all on the loopback.

The proxy first sends the prompt to the prefill server with `max_tokens` 1. It then sends the whole
request to the decode server. If the prefill server does not answer, the decode server computes the
prompt. If the decode server does not answer, the client receives status 502. The proxy sends one
OTLP span for each request.

    python -m rig.disaggregation_proxy --prefill 8001 --decode 8002 --otlp 4318
"""

import argparse
import asyncio
import json
import re
import secrets
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

SEND_EVERY_S: Final = 0.5
MAX_BODY_BYTES: Final = 1_000_000
MAX_SPANS: Final = 10_000
TIMEOUT_S: Final = 120.0
_PASSED: Final[tuple[str, ...]] = ("content-type", "authorization", "x-tenant-id")
_TRACEPARENT: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
_ID: Final = re.compile(rb'"id": ?"([^"\\]{1,256})"')
"""Matches the response id in a chunk of a response."""
_LAST_CHUNK: Final = b"0\r\n\r\n"
_UNAVAILABLE: Final = b"HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class ClientRequest(NamedTuple):
    """A client's request."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class ProxyAnswer(NamedTuple):
    """When the proxy wrote the first and the last byte of an answer's body, in monotonic seconds.

    `first_s` is None if there was no answer.
    """

    first_s: float | None
    last_s: float
    response_id: str | None = None
    status: int = 502


class Proxy:
    """Routes requests, and stores their spans until they are sent.

    Args:
        drop_context: whether to drop the trace context, as some routers do.
        drop_request_id: whether each server chooses its own request id.
        decode_first: whether to send the request to both servers at the same time, beginning with
            the decode server.
    """

    def __init__(
        self,
        prefill_port: int,
        decode_port: int,
        *,
        drop_context: bool,
        drop_request_id: bool,
        decode_first: bool,
    ) -> None:
        self._prefill_port = prefill_port
        self._decode_port = decode_port
        self._drop_context = drop_context
        self._drop_request_id = drop_request_id
        self._decode_first = decode_first
        self._spans: list[Span] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, which carries one request."""
        begun_unix_ns, begun_s = time.time_ns(), time.monotonic()
        try:
            request = await _read_request(reader)
            trace = _TRACEPARENT.fullmatch(request.headers.get("traceparent", ""))
            trace_id = trace[1] if trace else secrets.token_hex(16)
            span_id = secrets.token_hex(8)
            answer = await self._routed(request, writer, f"00-{trace_id}-{span_id}-01")
            self._spans.append(
                _span(
                    (trace_id, span_id, trace[2] if trace else ""),
                    begun_unix_ns,
                    round((answer.last_s - begun_s) * 1e9),
                    None if answer.first_s is None else answer.first_s - begun_s,
                    answer.response_id,
                )
            )
        except (OSError, ValueError, asyncio.IncompleteReadError, TimeoutError):
            pass  # the client's connection ended, or the request is malformed
        finally:
            writer.close()

    async def _routed(
        self, request: ClientRequest, writer: asyncio.StreamWriter, traceparent: str
    ) -> "ProxyAnswer":
        headers = {name: request.headers[name] for name in _PASSED if name in request.headers}
        if not self._drop_request_id:
            headers["x-request-id"] = request.headers.get("x-request-id", secrets.token_hex(8))
        if not self._drop_context:
            headers["traceparent"] = traceparent
        if self._decode_first:
            waiting = {**request.body, "kv_transfer_params": {"wait_for_kv": True}}
            decode = self._decode(request._replace(body=waiting), headers, writer)
            answer, _ = await asyncio.gather(decode, self._prefill(request, headers))
            return answer
        await self._prefill(request, headers)
        return await self._decode(request, headers, writer)

    async def _prefill(self, request: ClientRequest, headers: dict[str, str]) -> None:
        only_prompt = {**request.body, "max_tokens": 1, "stream": False}
        for name in ("stream_options", "kv_transfer_params"):
            only_prompt.pop(name, None)
        with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            await _exchange(self._prefill_port, request._replace(body=only_prompt), headers, None)

    async def _decode(
        self, request: ClientRequest, headers: dict[str, str], writer: asyncio.StreamWriter
    ) -> ProxyAnswer:
        try:
            return await _exchange(self._decode_port, request, headers, writer)
        except (OSError, asyncio.IncompleteReadError):
            writer.write(_UNAVAILABLE)
            await writer.drain()
            return ProxyAnswer(None, time.monotonic())

    async def send_spans(self, otlp_port: int) -> None:
        """Send the finished spans as one message. Keep the spans if the message is not accepted."""
        spans, self._spans = self._spans, []
        if not spans:
            return
        message = ExportTraceServiceRequest()
        group = message.resource_spans.add()
        name = KeyValue(key="service.name", value=AnyValue(string_value="rig-proxy"))
        group.resource.attributes.append(name)
        group.scope_spans.add(spans=spans).scope.name = "rig.disaggregation_proxy"
        body = message.SerializeToString()
        accepted = False
        with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            headers = {"content-type": "application/x-protobuf"}
            accepted = (await _post(otlp_port, "/v1/traces", headers, body)).status == 200
        if not accepted:
            self._spans = [*spans, *self._spans][-MAX_SPANS:]


def _span(
    ids: tuple[str, str, str],
    begun_unix_ns: int,
    length_ns: int,
    first_s: float | None,
    response_id: str | None,
) -> Span:
    texts = {"gen_ai.operation.name": "text_completion", "gen_ai.response.id": response_id}
    attributes = [
        KeyValue(key=name, value=AnyValue(string_value=text))
        for name, text in texts.items()
        if text is not None
    ]
    if first_s is not None:
        name = "gen_ai.response.time_to_first_chunk"
        attributes.append(KeyValue(key=name, value=AnyValue(double_value=first_s)))
    trace_id, span_id, parent_id = (bytes.fromhex(each) for each in ids)
    return Span(
        trace_id=trace_id,
        span_id=span_id,
        parent_span_id=parent_id,
        name="route",
        kind=Span.SPAN_KIND_SERVER,
        start_time_unix_nano=begun_unix_ns,
        end_time_unix_nano=begun_unix_ns + length_ns,
        attributes=attributes,
    )


async def _read_request(reader: asyncio.StreamReader) -> ClientRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    length = int(headers.get("content-length", "0"))
    if not 0 < length <= MAX_BODY_BYTES:
        raise ValueError(f"a body of {length} bytes; allowed: 1 to {MAX_BODY_BYTES}")
    body = json.loads(await reader.readexactly(length))
    return ClientRequest(first.split(" ")[1], headers, body)


async def _exchange(
    port: int, request: ClientRequest, headers: dict[str, str], client: asyncio.StreamWriter | None
) -> ProxyAnswer:
    """Send a request to a server. If there is a client, copy the answer to it."""
    body = json.dumps(request.body).encode()
    return await _post(port, request.path, headers, body, client)


async def _post(
    port: int,
    path: str,
    headers: dict[str, str],
    body: bytes,
    client: asyncio.StreamWriter | None = None,
) -> ProxyAnswer:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        lines = [f"POST {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines.append(f"Content-Length: {len(body)}")
        writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
        async with asyncio.timeout(TIMEOUT_S):
            head = await reader.readuntil(b"\r\n\r\n")
            if client is not None:
                client.write(head)
            first_s, last_s, response_id, tail = None, time.monotonic(), None, b""
            with suppress(ConnectionError):  # the server or the client ended during the answer
                while chunk := await reader.read(65_536):
                    if response_id is None and (found := _ID.search(chunk)):
                        response_id = found[1].decode()
                    if client is not None:
                        client.write(chunk)
                        await client.drain()
                    last_s = time.monotonic()
                    first_s, tail = first_s or last_s, (tail + chunk)[-len(_LAST_CHUNK) :]
            if b"transfer-encoding: chunked" in head.lower() and tail != _LAST_CHUNK:
                last_s = time.monotonic()  # the answer is incomplete
        return ProxyAnswer(first_s, last_s, response_id, int(head.split(b" ", 2)[1]))
    finally:
        writer.close()


async def _run(arguments: argparse.Namespace) -> None:
    proxy = Proxy(
        arguments.prefill,
        arguments.decode,
        drop_context=arguments.drop_context,
        drop_request_id=arguments.drop_request_id,
        decode_first=arguments.decode_first,
    )
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", arguments.port)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    print(f"listening on port {server.sockets[0].getsockname()[1]}", flush=True)
    while not stop.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(SEND_EVERY_S):
                await stop.wait()
        await proxy.send_spans(arguments.otlp)
    server.close()


def main(words: Sequence[str]) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="python -m rig.disaggregation_proxy",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--port", type=int, default=0, help="default: a free port")
    parser.add_argument("--prefill", type=int, required=True, help="port of the prefill server")
    parser.add_argument("--decode", type=int, required=True, help="port of the decode server")
    parser.add_argument("--otlp", type=int, required=True, help="port of OTLP over HTTP")
    parser.add_argument(
        "--drop-context", action="store_true", help="pass no traceparent to the servers"
    )
    parser.add_argument(
        "--drop-request-id", action="store_true", help="pass no X-Request-Id to the servers"
    )
    parser.add_argument(
        "--decode-first",
        action="store_true",
        help="send each request to both servers at the same time, as vLLM's example proxies for "
        "Mooncake and NIXL in push mode do; the decode server waits for the KV cache",
    )
    with suppress(KeyboardInterrupt):
        asyncio.run(_run(parser.parse_args(words)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
