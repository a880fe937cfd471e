"""Two real vLLMs behind `disaggregation_proxy`: a prefill server and a decode server.

The prefill server passes the KV cache to the decode server through files (`waiting_connector`),
because the machine has no GPU.
"""

import json
import os
import random
import secrets
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple, Self
from urllib.request import Request, urlopen

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from rig import serve
from rig.load import Call, Timed, send
from rig.ports import free_port
from rig.program import Program

ROOT: Final = Path(__file__).parent.parent


class RoleServer(Program):
    """A vLLM that does either prefill or decode.

    Args:
        folder: for the server's output and the KV cache (subfolder `kv`).
        role: `kv_producer` (prefill) or `kv_consumer` (decode).
        otlp_port: the port that receives the server's telemetry over HTTP.
    """

    def __init__(self, folder: Path, role: str, otlp_port: int) -> None:
        self.port = free_port()
        self.replica = role.removeprefix("kv_")
        connector = {
            "kv_connector": "WaitingConnector",
            "kv_connector_module_path": "waiting_connector",
            "kv_load_failure_policy": "recompute",
            "kv_role": role,
            "kv_connector_extra_config": {"shared_storage_path": str(folder / "kv")},
        }
        environ = {
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_RESOURCE_ATTRIBUTES": f"service.instance.id={self.replica}",
            "OTEL_BSP_SCHEDULE_DELAY": "500",
        }
        # A whole prompt must fit into the token budget of a step. If vLLM 0.32 computes a prompt in
        # several steps, ExampleConnector stores only a part of the KV cache. The decode engine then
        # exits.
        arguments = (
            *("--kv-transfer-config", json.dumps(connector)),
            *("--max-num-batched-tokens", "16384"),
        )
        endpoint = f"http://127.0.0.1:{otlp_port}"
        super().__init__(
            folder,
            *serve.command(self.port, arguments),
            environ=serve.environment(endpoint, {**os.environ, **environ}),
            start_new_session=True,
        )

    def kill_group(self) -> None:
        """Kill the server and its engine core. The telemetry in their memory is lost."""
        os.killpg(self.process.pid, 9)
        self.process.wait()


class Disaggregated:
    """A prefill server (producer) and a decode server (consumer).

    Args:
        otlp_port: the port that receives the telemetry of servers and proxies over HTTP.
    """

    def __init__(self, folder: Path, otlp_port: int) -> None:
        self._folder = folder
        self._otlp_port = otlp_port
        self._running = ExitStack()

    def __enter__(self) -> Self:
        self.prefill, self.decode = self._start("kv_producer", "kv_consumer")
        return self

    def start_prefill(self) -> None:
        """Start a new prefill server. Proxies that are already running do not use it."""
        (self.prefill,) = self._start("kv_producer")

    def _start(self, *roles: str) -> list[RoleServer]:
        servers = [RoleServer(self._folder, role, self._otlp_port) for role in roles]
        for server in servers:
            self._running.callback(server.stop)
        for server in servers:
            if not serve.wait_until_healthy(server.port, server.process):
                raise server.error("did not become healthy")
        return servers

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def proxy(self, *options: str) -> tuple[Program, int]:
        """Start a proxy with these options. Return the proxy and its port."""
        words = (
            *("--prefill", str(self.prefill.port), "--decode", str(self.decode.port)),
            *("--otlp", str(self._otlp_port), *options),
        )
        program = Program(
            self._folder,
            *(sys.executable, "-m", "rig.disaggregation_proxy", *words),
            environ={"PYTHONPATH": str(ROOT)},
        )
        self._running.callback(program.stop)
        return program, int(program.wait_for(r"listening on port (\d+)"))


def calls(number: int, seed: int) -> Sequence[Call]:
    """Completions and chats with different prompts, with and without streaming."""
    draw = random.Random(seed)
    return [
        Call(
            chat=index % 2 == 1,
            stream=index % 4 < 3,
            prompt="".join(draw.choices("abcdefgh ", k=draw.randint(200, 1_500))),
            max_tokens=draw.randint(2, 48),
            headers={
                "x-request-id": f"{seed}-{index}-{draw.getrandbits(48):x}",
                "x-tenant-id": f"tenant-{index % 3}",
            },
        )
        for index in range(number)
    ]


class SentRequest(NamedTuple):
    """A request, the client's measurements, and when the client sent it."""

    begun_unix_ns: int
    timed: Timed


def ask_all(port: int, several: Sequence[Call], concurrency: int) -> list[SentRequest]:
    """Send the calls in order, at most `concurrency` at the same time."""

    def ask(call: Call) -> SentRequest:
        begun_unix_ns = time.time_ns()
        return SentRequest(begun_unix_ns, send(port, call))

    with ThreadPoolExecutor(concurrency) as pool:
        return list(pool.map(ask, several))


def report(otlp_port: int, several: Sequence[SentRequest]) -> None:
    """Send a client span for each answered request, as an instrumented client would."""
    message = ExportTraceServiceRequest()
    spans = message.resource_spans.add().scope_spans.add().spans
    for begun_unix_ns, timed in several:
        if timed.request_id is None or timed.ttft_s is None:
            continue
        texts = {"gen_ai.operation.name": "chat", "gen_ai.response.id": timed.request_id}
        numbers = {"gen_ai.response.time_to_first_chunk": timed.ttft_s}
        spans.add(
            trace_id=bytes.fromhex(timed.trace_id),
            span_id=secrets.token_bytes(8),
            kind=Span.SPAN_KIND_CLIENT,
            start_time_unix_nano=begun_unix_ns,
            end_time_unix_nano=begun_unix_ns + round(timed.e2e_s * 1e9),
            attributes=[
                *(KeyValue(key=k, value=AnyValue(string_value=v)) for k, v in texts.items()),
                *(KeyValue(key=k, value=AnyValue(double_value=v)) for k, v in numbers.items()),
            ],
        )
    request = Request(
        f"http://127.0.0.1:{otlp_port}/v1/traces",
        message.SerializeToString(),
        {"content-type": "application/x-protobuf"},
    )
    with urlopen(request, timeout=30) as answer:
        answer.read()
