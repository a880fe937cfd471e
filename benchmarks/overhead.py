"""Measure the CPU cost of the plugin for a server, compared with vLLM's own tracing.

    python benchmarks/overhead.py [--blocks 2] [--rounds 15] [--requests 60] [--tokens 32]
    python benchmarks/overhead.py --engines 2
    python benchmarks/overhead.py --reasoning
    python benchmarks/overhead.py --server "vllm serve FOLDER --gpu-memory-utilization 0.29"

Three real servers run: without tracing, with vLLM's native tracing, and with the plugin. With
--server, one GPU must have memory for all three servers. With --reasoning, each response begins
with reasoning, so the plugin searches each chunk for the first content.

In each round, every server gets the same load in turn, so that other programs disturb all servers
equally. The servers are restarted for each block, because a process' memory layout affects its
speed. The CPU time of the API servers is measured until the server's next turn, so it includes
exports. The CPU time of the idle server is subtracted. The result is the mean difference in a
round, with a 95 % interval (bootstrap over rounds).
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._options import add_server
from rig import install, reasoning_model, serve
from rig.install import ensure
from rig.load import Call, send_all
from rig.ports import free_port

IDLE_S = 60.0
"""Seconds for which an idle server is measured, with 11 to 13 exports."""
SETTLE_S = 6.0
"""Seconds after the last request until its exports are sent."""

ENDS_SOON: dict[str, Any] = {"logit_bias": {str(reasoning_model.END_ID): 4}, "seed": 1}
"""Request parameters that end the reasoning early. Each token ends it with a probability of about a
tenth."""

BLOCKS = "512"
"""Number of KV blocks of each engine. They contain 65,536 tokens, enough for all requests of a
turn."""

KINDS = ("plain", "native", "tailspan")


@dataclass
class MeasuredServer:
    """A running server of one kind."""

    kind: str
    port: int
    process: subprocess.Popen[bytes]
    front_ends: list[int] = field(default_factory=list)
    """The ids of the processes that run no engine."""

    def cpu_s(self) -> float:
        """The CPU seconds that all threads of the API server processes have used."""
        total_ns = 0
        for process in self.front_ends:
            for thread in Path(f"/proc/{process}/task").iterdir():
                with suppress(OSError):  # the thread has ended
                    total_ns += int((thread / "schedstat").read_text().split()[0])
        return total_ns / 1e9


@dataclass
class ServerTurns:
    """The measurements of one server. A turn is the server's time under load in one round."""

    idle_cpu_per_s: float
    begun: list[tuple[float, float]] = field(default_factory=list)
    """Time and CPU time in seconds, at the start of each turn and after the last turn."""
    requests_per_s: list[float] = field(default_factory=list)
    tpot_s: list[float] = field(default_factory=list)
    """Mean TPOT of each turn, measured by the client."""

    def cpu_per_request_s(self, requests: int) -> list[float]:
        """CPU seconds per request for each turn, minus the CPU seconds of the idle server."""
        return [
            (cpu_then - cpu - self.idle_cpu_per_s * (then - at)) / requests
            for (at, cpu), (then, cpu_then) in pairwise(self.begun)
        ]


def sink(port: int) -> None:
    """Run a server that accepts every export and stores nothing."""

    def take(request: bytes, context: grpc.ServicerContext) -> bytes:
        return b""

    class Take(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
        def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
            return grpc.unary_unary_rpc_method_handler(take)

    server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[Take()])
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


@contextmanager
def sink_process() -> Iterator[str]:
    """Run `sink` in a separate process, and return its address."""
    port = free_port()
    taking = subprocess.Popen([sys.executable, __file__, "--sink", str(port)])
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        taking.terminate()


def calls_of(draw: random.Random, requests: int, tokens: int, body: dict[str, Any]) -> list[Call]:
    """Requests with random prompts of 200 characters. `body` contains additional fields."""
    prompts = ["".join(draw.choices("abcdefgh ", k=200)) for _ in range(requests)]
    return [Call(prompt=prompt, max_tokens=tokens, body=body) for prompt in prompts]


def several_engines(number: int) -> list[str]:
    """Return vLLM's arguments for a server with this number of engines."""
    if number == 1:
        return []
    # By default, each engine has a gigabyte of KV cache. This is too much for several engines.
    return ["--data-parallel-size", str(number), "--num-gpu-blocks-override", BLOCKS]


def start(kind: str, endpoint: str, command: Sequence[str], extra: Sequence[str]) -> MeasuredServer:
    """Start a server of one kind, and wait until it serves requests.

    Args:
        command: the command of another server; empty for the tiny model.
    """
    port = free_port()
    arguments = [*extra, *(["--otlp-traces-endpoint", endpoint] if kind == "native" else [])]
    environ = {
        **os.environ,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        "OTEL_EXPORTER_OTLP_INSECURE": "true",
        "OTEL_EXPORTER_OTLP_TRACES_INSECURE": "true",
        "OTEL_SERVICE_NAME": kind,
    }
    if kind != "tailspan":
        # No plugin has this name, so vLLM does not load Tailspan's plugin.
        environ["VLLM_PLUGINS"] = "none"
    process = subprocess.Popen(
        serve.command(port, arguments, command),
        env=serve.environment(endpoint, environ),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    server = MeasuredServer(kind, port, process)
    if not serve.wait_until_healthy(port, process):
        serve.stop(process)
        raise SystemExit(f"the {kind} server did not start")
    server.front_ends = serve.front_ends(process)
    return server


def load(server: MeasuredServer, calls: list[Call], concurrency: int) -> tuple[float, float]:
    """Send the calls, and return the requests per second and the mean TPOT in seconds."""
    begun = time.monotonic()
    seen = send_all(server.port, calls, concurrency)
    took_s = time.monotonic() - begun
    if any(timed.status != 200 for timed in seen):
        raise SystemExit(f"the {server.kind} server failed a request")
    tpot_s = [
        (timed.e2e_s - timed.ttft_s) / (timed.call.max_tokens - 1)
        for timed in seen
        if timed.ttft_s is not None
    ]
    return len(seen) / took_s, statistics.mean(tpot_s)


def block(
    endpoint: str,
    command: Sequence[str],
    extra: Sequence[str],
    kinds: Sequence[str],
    calls: list[Call],
    rounds: int,
    concurrency: int,
    draw: random.Random,
) -> dict[str, ServerTurns]:
    """Start the servers, send load to each server once per round, and stop the servers."""
    servers: list[MeasuredServer] = []
    try:
        for kind in kinds:
            servers.append(start(kind, endpoint, command, extra))
        for server in servers:
            load(server, calls, concurrency)  # warm up
        time.sleep(SETTLE_S)
        before = {server.kind: server.cpu_s() for server in servers}
        time.sleep(IDLE_S)
        turns = {
            server.kind: ServerTurns((server.cpu_s() - before[server.kind]) / IDLE_S)
            for server in servers
        }
        # The order is fixed, so that the time between two turns of a server is always one round.
        draw.shuffle(servers)
        for number in range(rounds):
            for server in servers:
                mine = turns[server.kind]
                mine.begun.append((time.monotonic(), server.cpu_s()))
                requests_per_s, tpot_s = load(server, calls, concurrency)
                mine.requests_per_s.append(requests_per_s)
                mine.tpot_s.append(tpot_s)
            print(f"round {number + 1} of {rounds}", flush=True)
        time.sleep(SETTLE_S)
        for server in servers:
            turns[server.kind].begun.append((time.monotonic(), server.cpu_s()))
    finally:
        for server in servers:
            serve.stop(server.process)
    return turns


def main() -> int:
    """Measure and print the costs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--blocks", type=int, default=2, help="how many times the servers are started"
    )
    parser.add_argument("--rounds", type=int, default=15, help="turns per server in a block")
    parser.add_argument("--requests", type=int, default=60, help="requests per turn")
    parser.add_argument("--tokens", type=int, default=32, help="output tokens per request")
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--engines", type=int, default=1, help="engines per server")
    parser.add_argument(
        "--without-native",
        action="store_true",
        help="start no server with native tracing, on a machine with little memory",
    )
    parser.add_argument(
        "--reasoning", action="store_true", help="responses begin with streamed reasoning"
    )
    add_server(parser)
    parser.add_argument("--sink", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.sink:
        sink(arguments.sink)
        return 0
    if not arguments.server:
        ensure()
    draw = random.Random(1)
    body = ENDS_SOON if arguments.reasoning else {}
    calls = calls_of(draw, arguments.requests, arguments.tokens, body)
    kinds = [kind for kind in KINDS if kind != "native" or not arguments.without_native]
    extra = several_engines(arguments.engines)
    with sink_process() as endpoint, tempfile.TemporaryDirectory() as folder:
        if arguments.reasoning:
            subprocess.run([install.PYTHON, reasoning_model.__file__, folder], check=True)
            extra += ["--tokenizer", folder, "--reasoning-parser", "deepseek_r1"]
        blocks = [
            block(
                endpoint,
                arguments.server,
                extra,
                kinds,
                calls,
                arguments.rounds,
                arguments.concurrency,
                draw,
            )
            for _ in range(arguments.blocks)
        ]
    report(blocks, arguments.requests, arguments.tokens)
    return 0


def report(blocks: list[dict[str, ServerTurns]], requests: int, tokens: int) -> None:
    """Print the means of the differences within a round, with their confidence intervals."""
    kinds = list(blocks[0])
    cpu_ms = {
        kind: [1e3 * cpu for turns in blocks for cpu in turns[kind].cpu_per_request_s(requests)]
        for kind in kinds
    }
    rate = {
        kind: [rate for turns in blocks for rate in turns[kind].requests_per_s] for kind in kinds
    }
    tpot_s = {kind: [tpot for turns in blocks for tpot in turns[kind].tpot_s] for kind in kinds}
    print(f"\nAPI-server CPU per request of {tokens} tokens, {len(cpu_ms['plain'])} rounds:")
    print(f"  plain              {statistics.mean(cpu_ms['plain']):6.2f} ms")
    added = {
        kind: [mine - base for mine, base in zip(cpu_ms[kind], cpu_ms["plain"], strict=True)]
        for kind in kinds[1:]
    }
    for kind in kinds[1:]:
        low, high = interval([added[kind]], lambda sample: statistics.mean(sample[0]))
        mean = statistics.mean(added[kind])
        print(f"  added by {kind:9} {mean:6.2f} ms  [{low:.2f}, {high:.2f}]")
    if "native" in kinds:
        print(compared(added["tailspan"], added["native"]))
    print(
        f"plain: {statistics.median(rate['plain']):.2f} requests/s, "
        f"TPOT {1e3 * statistics.median(tpot_s['plain']):.3f} ms"
    )
    for name, values in (("throughput", rate), ("TPOT", tpot_s)):
        for kind in kinds[1:]:
            ratios = [mine / base for mine, base in zip(values[kind], values["plain"], strict=True)]
            low, high = interval([ratios], lambda sample: statistics.median(sample[0]))
            middle = statistics.median(ratios)
            print(f"{name}, {kind} / plain: {middle:.3f}  [{low:.3f}, {high:.3f}]")
    for kind in kinds:
        idle = statistics.mean(turns[kind].idle_cpu_per_s for turns in blocks)
        print(f"idle, {kind}: {idle * 1e3:.2f} ms of CPU a second")


def compared(ours: list[float], native: list[float]) -> str:
    """The ratio of the CPU times that the plugin and native tracing add, if native tracing adds CPU
    time."""
    if interval([native], lambda sample: statistics.mean(sample[0]))[0] <= 0:
        return "  ours / native      unknown: the cost of native tracing is within the noise"
    ratio = statistics.mean(ours) / statistics.mean(native)
    low, high = interval(
        [ours, native], lambda sample: statistics.mean(sample[0]) / statistics.mean(sample[1])
    )
    return f"  ours / native      {ratio:6.2f}     [{low:.2f}, {high:.2f}]"


def interval(
    columns: list[list[float]], statistic: Callable[[list[list[float]]], float]
) -> tuple[float, float]:
    """Return the 95 % confidence interval of a statistic of paired columns, by bootstrap over the
    rows."""
    draw, rows = random.Random(2), list(zip(*columns, strict=True))
    seen = sorted(
        statistic([list(column) for column in zip(*draw.choices(rows, k=len(rows)), strict=True)])
        for _ in range(2000)
    )
    return seen[50], seen[1949]


if __name__ == "__main__":
    sys.exit(main())
