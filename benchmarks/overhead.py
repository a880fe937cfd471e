"""What the instrumentation costs a server, beside vLLM's own tracing.

    python benchmarks/overhead.py [--rounds 7] [--requests 150] [--tokens 32]

Three real servers on this machine's CPU: plain, with vLLM's native tracing, with ours. They
get the same load in turns, round after round, so that a noisy machine disturbs all of them
alike; ratios are taken within a round, and their median is told. CPU is the API server
process's own (user and system), its telemetry thread and a pause for its export included.
"""

import argparse
import os
import random
import socket
import statistics
import subprocess
import sys
import time
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import grpc

sys.path.insert(0, str(Path(__file__).parent.parent))

from rig import serve
from rig.install import ensure
from rig.load import Call, send_all

SETTLE_S = 2.5
"""Time for what was captured to be sent: it is part of the cost."""

KINDS = ("plain", "native", "tailspan")


@dataclass
class Server:
    """A running server of one kind."""

    kind: str
    port: int
    process: subprocess.Popen[bytes]

    def cpu_s(self) -> float:
        """User and system seconds of the API server process so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    """A port that nobody uses just now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def sink(port: int) -> None:
    """Take every export and keep nothing."""

    def take(request: bytes, context: grpc.ServicerContext) -> bytes:
        return b""

    class Take(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
        def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
            return grpc.unary_unary_rpc_method_handler(take)

    server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[Take()])
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


def start(kind: str, endpoint: str) -> Server:
    """Start a server of one kind, and wait until it serves."""
    port = free_port()
    arguments = ["--otlp-traces-endpoint", endpoint] if kind == "native" else []
    environ = {
        **os.environ,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        "OTEL_EXPORTER_OTLP_INSECURE": "true",
        "OTEL_EXPORTER_OTLP_TRACES_INSECURE": "true",
        "OTEL_SERVICE_NAME": kind,
    }
    if kind != "tailspan":
        environ["VLLM_PLUGINS"] = "none"  # a plugin of no such name: ours stays out
    process = subprocess.Popen(
        serve.command(port, arguments),
        env=serve.environment(endpoint, environ),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    server = Server(kind, port, process)
    if not serve.wait_until_healthy(port, process):
        raise SystemExit(f"the {kind} server did not come up")
    return server


def measure(server: Server, calls: list[Call], concurrency: int) -> tuple[float, float]:
    """CPU seconds per request, and requests per second, over one load."""
    before, begun = server.cpu_s(), time.monotonic()
    seen = send_all(server.port, calls, concurrency)
    took_s = time.monotonic() - begun
    if any(timed.status != 200 for timed in seen):
        raise SystemExit(f"the {server.kind} server failed a request")
    time.sleep(SETTLE_S)
    return (server.cpu_s() - before) / len(seen), len(seen) / took_s


def ledger_cost_us(batch: int, steps: int = 3000) -> float:
    """Microseconds of ledger work per engine step, with `batch` requests decoding."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "instrumentation"))
    from tailspan_vllm.enginecore import EngineObserver
    from tailspan_vllm.link import EngineEnd

    observer = EngineObserver(EngineEnd(f"benchmark-{os.getpid()}-{batch}", "engine-0"), 0)
    ids = [f"chatcmpl-{number:032x}" for number in range(batch)]
    scheduler = SimpleNamespace(
        requests={name: SimpleNamespace(num_computed_tokens=900, num_tokens=900) for name in ids},
        has_unfinished_requests=lambda: True,
        running=ids,
        waiting=[],
        vllm_config=SimpleNamespace(model_config=SimpleNamespace(served_model_name="m")),
    )
    nobody = SimpleNamespace(num_computed_tokens=[], resumed_req_ids=set())
    cached = SimpleNamespace(num_computed_tokens=[900] * batch, resumed_req_ids=set())
    first = SimpleNamespace(
        num_scheduled_tokens=dict.fromkeys(ids, 900),
        scheduled_new_reqs=[SimpleNamespace(req_id=name) for name in ids],
        scheduled_cached_reqs=nobody,
    )
    counts = dict.fromkeys(ids, 1)
    spent, now = 0.0, time.monotonic()
    for number in range(steps):
        output = first
        if number:
            output = SimpleNamespace(
                num_scheduled_tokens=counts, scheduled_new_reqs=[], scheduled_cached_reqs=cached
            )
        now += 0.01
        results = {0: SimpleNamespace(timestamp=now)}
        begun = time.perf_counter()
        observer.scheduled(scheduler, output, now - 0.01)
        observer.update_began()
        observer.ended(scheduler, output, results)
        spent += time.perf_counter() - begun
    return spent / steps * 1e6


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=150, help="per server and round")
    parser.add_argument("--tokens", type=int, default=32, help="output tokens of each request")
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--sink", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.sink:
        sink(asked.sink)
        return 0
    for batch in (1, 16, 256):
        print(f"ledger, {batch:3} decoding: {ledger_cost_us(batch):5.1f} µs per engine step")
    ensure()
    sink_port = free_port()
    taking = subprocess.Popen([sys.executable, __file__, "--sink", str(sink_port)])
    servers = []
    draw = random.Random(1)
    results: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    try:
        for kind in KINDS:
            servers.append(start(kind, f"http://127.0.0.1:{sink_port}"))
        prompts = ["".join(draw.choices("abcdefgh ", k=200)) for _ in range(asked.requests)]
        calls = [Call(prompt=prompt, max_tokens=asked.tokens) for prompt in prompts]
        for server in servers:
            measure(server, calls[:40], asked.concurrency)  # warm up
        for number in range(asked.rounds):
            draw.shuffle(servers)
            for server in servers:
                results[server.kind].append(measure(server, calls, asked.concurrency))
            told = "  ".join(
                f"{kind} {results[kind][-1][0] * 1e3:.2f} ms, {results[kind][-1][1]:.1f}/s"
                for kind in KINDS
            )
            print(f"round {number + 1}: {told}", flush=True)
    finally:
        for server in servers:
            serve.stop(server.process)
        taking.terminate()
    report(results, asked.tokens)
    return 0


def report(results: dict[str, list[tuple[float, float]]], tokens: int) -> None:
    """Paired medians."""
    plain = results["plain"]
    added = {
        kind: statistics.median(
            mine[0] - base[0] for mine, base in zip(results[kind], plain, strict=True)
        )
        for kind in KINDS[1:]
    }
    print(f"\nAPI-server CPU per request of {tokens} tokens, paired medians over the rounds:")
    print(f"  plain              {statistics.median(cpu for cpu, _ in plain) * 1e3:6.2f} ms")
    for kind in KINDS[1:]:
        print(f"  added by {kind:9} {added[kind] * 1e3:6.2f} ms")
    if added["native"] > 0:
        print(f"  ours / native      {added['tailspan'] / added['native']:6.2f}")
    for kind in KINDS[1:]:
        ratio = statistics.median(
            mine[1] / base[1] for mine, base in zip(results[kind], plain, strict=True)
        )
        print(f"throughput, {kind} / plain: {ratio:.3f}")


if __name__ == "__main__":
    sys.exit(main())
