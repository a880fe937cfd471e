"""OTLP senders that resend each message until it is acknowledged, to check that nothing is lost."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import grpc
import requests
from google.rpc.error_details_pb2 import RetryInfo
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub

TIMEOUT_S = 10.0
PAUSE_S = 0.2
"""Seconds between two attempts to send a message."""

Message = ExportTraceServiceRequest


class Senders:
    """Threads that send messages until they are stopped.

    Args:
        make: returns a new message with spans that were not sent before.
        http_port: port of OTLP over HTTP on the loopback.
        grpc_port: port of OTLP over gRPC, or None to use HTTP only.
        each: number of threads per transport.
    """

    def __init__(
        self,
        make: Callable[[], Message],
        http_port: int,
        grpc_port: int | None = None,
        *,
        each: int = 2,
    ) -> None:
        self.acknowledged: set[str] = set()
        """Trace ids that were acknowledged."""
        self.answers: Counter[str] = Counter()
        """Number of responses for each HTTP status ("200") or gRPC code ("UNAVAILABLE"). "away"
        counts missing responses."""
        self.without_delay: Counter[str] = Counter()
        """Number of responses that ask for a retry without a delay."""
        self._make = make
        self._http = f"http://127.0.0.1:{http_port}/v1/traces"
        self._grpc = f"127.0.0.1:{grpc_port}"
        self._lock = threading.Lock()
        self._stop = threading.Event()
        ways = [self._over_http] if grpc_port is None else [self._over_http, self._over_grpc]
        self._threads = [
            threading.Thread(target=self._run, args=(way,)) for way in ways for _ in range(each)
        ]

    def __enter__(self) -> "Senders":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, send: Callable[[Any, Message], tuple[str, bool]]) -> None:
        with requests.Session() as session:
            session.trust_env = False
            while not self._stop.is_set():
                message = self._make()
                while not self._stop.is_set():
                    answer, acknowledged = send(session, message)
                    with self._lock:
                        self.answers[answer] += 1
                        if acknowledged:
                            self.acknowledged |= trace_ids(message)
                    if acknowledged:
                        break
                    time.sleep(PAUSE_S)

    def _over_http(self, session: requests.Session, message: Message) -> tuple[str, bool]:
        try:
            answer = session.post(
                self._http,
                message.SerializeToString(),
                headers={"Content-Type": "application/x-protobuf"},
                timeout=TIMEOUT_S,
            )
        except requests.RequestException:
            return "away", False
        if answer.status_code in (429, 503) and "Retry-After" not in answer.headers:
            self.without_delay[str(answer.status_code)] += 1
        return str(answer.status_code), answer.status_code == 200

    def _over_grpc(self, _session: requests.Session, message: Message) -> tuple[str, bool]:
        with grpc.insecure_channel(self._grpc, [("grpc.enable_http_proxy", 0)]) as channel:
            try:
                stub = TraceServiceStub(channel)  # type: ignore[no-untyped-call]  # generated
                stub.Export(message, timeout=TIMEOUT_S)
            except grpc.RpcError as error:
                code = error.code().name
                details = dict(error.trailing_metadata() or ())
                if "grpc-status-details-bin" not in details:
                    return "away", False  # the error comes from gRPC itself, not from a collector
                retry = RetryInfo.FromString(details.get("google.rpc.retryinfo-bin", b""))
                if not retry.retry_delay.seconds:
                    self.without_delay[code] += 1
                return code, False
        return "OK", True


def trace_ids(message: Message) -> set[str]:
    """The trace ids of a message's spans, in hexadecimal."""
    return {
        span.trace_id.hex()
        for resource in message.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    }
