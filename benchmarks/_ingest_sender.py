"""The sender of `ingest.py`, which sends batches as fast as they are accepted.

    python benchmarks/_ingest_sender.py grpc|http PORT SECONDS

To save CPU time, a few batches are encoded once. Their ids and timestamps are overwritten before
each sending. The program prints one JSON object: acknowledged spans, seconds, CPU seconds, and
batches that were rejected and sent again.
"""

import http.client
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable

import grpc
from opentelemetry.sdk.resources import Resource
from tailspan_vllm import names
from tailspan_vllm.otlp.encoder import encode
from tailspan_vllm.otlp.request_span import span_of
from tailspan_vllm.request.parts import RequestPhaseParts
from tailspan_vllm.request.record import RequestRecord

SPANS, BATCHES, SENDERS = 512, 32, 16
METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
PAUSE_S = 0.2


def record(chance: random.Random) -> RequestRecord:
    """A record with all fields of a real request."""
    frontend, queue, prefill = (chance.expovariate(1 / mean) for mean in (0.01, 0.05, 0.2))
    tokens = chance.randrange(2, 800)
    decode = tokens * 0.02 * chance.uniform(0.5, 2)
    queued = 100.0 + frontend
    first = queued + queue + prefill
    return RequestRecord(
        received=100.0,
        arrived=100.0 + frontend / 2,
        queued=queued,
        scheduled=queued + queue,
        first_token=first,
        first_byte=first + 0.001,
        last_token=first + decode,
        delivered=first + decode + 0.002,
        wall_offset_ns=time.time_ns() - 200 * 10**9,
        outcome=chance.choice(["stop", "stop", "length", "abort"]),
        basis="http",
        trace_id=chance.getrandbits(128),
        request_id=f"chatcmpl-{chance.getrandbits(128):032x}",
        model="meta-llama/Llama-3.1-8B-Instruct",
        tenant=f"tenant-{chance.randrange(50)}",
        route="/v1/chat/completions",
        engine=0,
        config="3f0f5ec2",
        streamed=True,
        http_status=200,
        prompt_tokens=chance.randrange(10, 8000),
        cached_tokens=16 * chance.randrange(100),
        external_cached_tokens=0,
        output_tokens=tokens,
        preemptions=0,
        itl_max_s=min(chance.uniform(0.02, 0.4), decode),
        prefill_parts=RequestPhaseParts(prefill * 0.7, prefill * 0.2, prefill * 0.1, 0.0, 0.0),
        decode_parts=RequestPhaseParts(decode * 0.6, decode * 0.2, decode * 0.1, 0.0, decode * 0.1),
        waiting_at_arrival=chance.randrange(20),
        running_at_arrival=chance.randrange(200),
        kv_usage_at_arrival=chance.random(),
    )


class SpanBatch:
    """A batch of 512 spans with new ids and timestamps."""

    def __init__(self, chance: random.Random, replica: int) -> None:
        resource = Resource(
            {
                names.SERVICE_NAME: "vllm",
                names.SERVICE_INSTANCE_ID: f"replica-{replica}",
                names.CLOUD_REGION: "eu-north-1",
                names.PROCESS_PID: 4242,
            }
        )
        spans = [span_of(record(chance), resource) for _ in range(SPANS)]
        self.body = bytearray(encode(spans))
        self._places: list[tuple[int, int, int, int]] = []
        at = 0
        for span in spans:
            ids = span.context
            assert ids is not None
            assert span.start_time is not None
            assert span.end_time is not None
            at = self.body.index(ids.trace_id.to_bytes(16, "big"), at)
            start = self.body.index(span.start_time.to_bytes(8, "little"), at)
            self._places.append((at, start, start + 9, span.end_time - span.start_time))

    def fresh(self) -> bytes:
        """The body of a message with requests that end now."""
        body, now = self.body, time.time_ns()
        fresh = os.urandom(24 * SPANS)
        for number, (at, start, end, length) in enumerate(self._places):
            body[at : at + 16] = fresh[24 * number : 24 * number + 16]
            body[at + 18 : at + 26] = fresh[24 * number + 16 : 24 * number + 24]
            received = now - length + number
            body[start : start + 8] = received.to_bytes(8, "little")
            body[end : end + 8] = (received + length).to_bytes(8, "little")
        return bytes(body)


def by_grpc(port: int) -> Callable[[bytes], bool]:
    """A function that sends a batch over a shared channel."""
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    export = channel.unary_unary(METHOD)

    def send(body: bytes) -> bool:
        try:
            export(body, timeout=60)
        except grpc.RpcError:
            return False
        return True

    return send


def by_http(port: int) -> Callable[[bytes], bool]:
    """A function that sends a batch over a separate connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Content-Type": "application/x-protobuf"}

    def send(body: bytes) -> bool:
        try:
            connection.request("POST", "/v1/traces", body, headers)
            response = connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            return False
        return response.status == 200

    return send


def main() -> None:
    """Send batches for a given time, and print the result."""
    transport, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    chance = random.Random(1)
    batches = [SpanBatch(chance, number % 4) for number in range(BATCHES)]
    acknowledged, refused = [0] * SENDERS, [0] * SENDERS
    connect = by_grpc if transport == "grpc" else by_http
    shared = by_grpc(port) if transport == "grpc" else None
    began, cpu = time.monotonic(), time.process_time()

    def run(number: int) -> None:
        send = shared or connect(port)
        own = batches[number::SENDERS]
        turn = 0
        while time.monotonic() - began < seconds:
            body = own[turn % len(own)].fresh()
            turn += 1
            while not send(body):
                refused[number] += 1
                if time.monotonic() - began >= seconds:
                    return
                time.sleep(PAUSE_S)
            acknowledged[number] += SPANS

    threads = [threading.Thread(target=run, args=(number,)) for number in range(SENDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(
        json.dumps(
            {
                "acknowledged": sum(acknowledged),
                "seconds": time.monotonic() - began,
                "cpu_s": time.process_time() - cpu,
                "refused": sum(refused),
            }
        )
    )


if __name__ == "__main__":
    main()
