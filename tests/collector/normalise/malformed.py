"""Generates malformed payloads from a seed, and sends them."""

import base64
import gzip
import json
import random
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
PROTOCOLS = ("grpc", "http-protobuf", "http-json")
ALLOWED = {
    "grpc": {"OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"},
    "http-protobuf": {"200", "400", "413"},
    "http-json": {"200", "400", "413"},
}
"""The allowed responses; other responses are defects."""

_IN_FLIGHT = 32
_ODD = (b"\x00", b"\xff", b"\x0a\x00", b"\x80" * 9, b"\xff" * 9 + b"\x01", b"\x0a\xff\xff\x03")
_ODD_JSON = (b"null", b"[]", b"{}", b'""', b"-1", b"1e999", b'"\\ud800"', b"[" * 64, b"9" * 400)


def json_of(message: ExportTraceServiceRequest) -> bytes:
    def walk(given: Any) -> Any:
        if isinstance(given, list):
            return [walk(each) for each in given]
        if not isinstance(given, dict):
            return given
        return {
            key: base64.b64decode(value).hex() if key in ("traceId", "spanId") else walk(value)
            for key, value in given.items()
        }

    return json.dumps(walk(MessageToDict(message, use_integers_for_enums=True))).encode()


def corrupted(good: bytes, number: int, seed: int, *, text: bool) -> Iterator[bytes]:
    """Return `number` payloads with one to four random changes each."""
    chance = random.Random(seed)
    odd = _ODD_JSON if text else _ODD
    for _ in range(number):
        body = bytearray(good)
        for _ in range(chance.randrange(1, 5)):
            at = chance.randrange(len(body) + 1)
            end = min(len(body), at + chance.choice((1, 1, 2, 8, 200)))
            match chance.randrange(7):
                case 0:
                    body[at:end] = chance.randbytes(end - at)
                case 1:
                    del body[at:end]
                case 2:
                    del body[at:]
                case 3:
                    body[at:at] = body[at:end] * chance.choice((1, 2, 50))
                case 4:
                    body[at:end] = chance.choice(odd)
                case 5:
                    body[at:at] = chance.choice(odd)
                case 6 if at < len(body):
                    body[at] ^= 1 << chance.randrange(8)
        yield bytes(body[: 64 * 1024])


def answers(protocol: str, port: int, bodies: Iterator[bytes]) -> Iterator[str]:
    return _by_grpc(port, bodies) if protocol == "grpc" else _by_http(protocol, port, bodies)


def _by_grpc(port: int, bodies: Iterator[bytes]) -> Iterator[str]:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        export: Callable[..., Any] = channel.unary_unary(METHOD).future
        waiting: list[Any] = []
        for body in bodies:
            waiting.append(export(body, timeout=60))
            if len(waiting) == _IN_FLIGHT:
                yield from (each.code().name for each in waiting)
                waiting.clear()
        yield from (each.code().name for each in waiting)


def _by_http(protocol: str, port: int, bodies: Iterator[bytes]) -> Iterator[str]:
    kind = "application/json" if protocol == "http-json" else "application/x-protobuf"
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    for number, body in enumerate(bodies):
        headers = {"Content-Type": kind}
        if number % 8 == 7:  # every eighth is compressed, and a quarter of these is damaged
            body = gzip.compress(body, 1)
            headers["Content-Encoding"] = "gzip"
            if number % 32 == 31:
                body = body[: len(body) // 2]
        connection.request("POST", "/v1/traces", body, headers)
        response = connection.getresponse()
        response.read()
        yield str(response.status)
    connection.close()
