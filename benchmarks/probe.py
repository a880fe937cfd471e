"""Measure the prober: its memory, its schedule, and the error of the network time.

    python benchmarks/probe.py [--endpoints 100] [--seconds 30]
    python benchmarks/probe.py --vllm       network time alone, with a real vLLM and its plugin

Like the plugin, a test server measures the time from the end of each request to the first byte of
its response.

Schedule: each of 100 endpoints is probed every 5 s, and answers after 4 s. The lateness is the real
start minus the scheduled start. Then `tailspan probe --once` starts all probes at the same time.

Network: probes go through `rig/network_proxy.py`, which adds known delays. The network time is the
client's first event minus the server's first byte. The error is the network time minus the added
delay.
"""

import argparse
import asyncio
import json
import logging
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from signal import SIGINT
from typing import Any, Final, NoReturn

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "instrumentation"))

from sqlalchemy import select

from probe.budget import ProbeBudget
from probe.plan import DailyLimits, Endpoint
from probe.run_probe import Due, Prober
from rig.faults.recording import EXPORTED_S, collecting, serving
from rig.network_proxy import Disturbance, first_events, network_proxy
from rig.ports import free_port
from store.database import open_database
from store.schema import REQUESTS
from telemetry.probes import Probe

EVERY_S: Final = 5.0
ANSWER_S: Final = 4.0
MEMORY_MB: Final = 100.0
LATE_RATIO: Final = 0.01
DELAYS_S: Final = (0.0, 0.005, 0.02, 0.1)
PROBES: Final = 40
_HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--endpoints", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--vllm", action="store_true", help="probe a real vLLM on the CPU")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(_serve(arguments.serve))
        return
    if arguments.vllm:
        _finish(_network_of_vllm())
    port = free_port()
    with subprocess.Popen([sys.executable, __file__, "--serve", str(port)]) as server:
        try:
            _wait_for(port)
            met = [
                *_schedule(port, arguments.endpoints, arguments.seconds),
                *_at_once(port, arguments.endpoints),
                *asyncio.run(_network(port, "/0.08", lambda _: asyncio.run(_seen(port)))),
            ]
        finally:
            server.terminate()
    _finish(met)


def _finish(met: Sequence[bool]) -> NoReturn:
    print(f"{sum(met)} of {len(met)} goals met")
    sys.exit(0 if all(met) else 1)


def _network_of_vllm() -> list[bool]:
    """Measure the network time of probes to a real vLLM that serves no other requests."""
    with (
        tempfile.TemporaryDirectory() as folder,
        collecting(Path(folder)) as otlp_port,
        serving(Path(folder), otlp_port, ()) as vllm,
    ):

        def seen(wanted: Sequence[Probe]) -> dict[str, float]:
            time.sleep(EXPORTED_S)
            engine = open_database(f"sqlite:///{folder}/tailspan.db", create=False)
            with engine.connect() as connection:
                rows = connection.execute(
                    select(REQUESTS.c.trace_id, REQUESTS.c.ttft_s).where(
                        REQUESTS.c.trace_id.in_([each.trace_id for each in wanted])
                    )
                )
                found = {f"probe-{row.trace_id}": float(row.ttft_s) for row in rows}
            engine.dispose()
            return found

        return asyncio.run(_network(vllm.port, "", seen))


async def _serve(port: int) -> None:
    """Serve until killed. A request's path contains the duration of its response.

    `/seen` returns the time to the first byte of each request.
    """
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # clients may disconnect
    seen: dict[str, float] = {}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
            await reader.readexactly(int(fields.get("content-length", 0)))
            received = time.monotonic()
            path = head.split(" ")[1]
            if path == "/seen":
                body = json.dumps(seen).encode()
                writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + body)
            else:
                seconds = float(path.split("/")[1])
                writer.write(_HEAD)
                await asyncio.sleep(seconds / 4)
                for place in range(4):
                    if place:
                        await asyncio.sleep(seconds / 4)
                    writer.write(_event({"delta": {"content": "one two"}}))
                    if not place:
                        seen[fields["x-request-id"]] = time.monotonic() - received
                writer.write(_event({"delta": {}, "finish_reason": "stop"}))
                usage = {"prompt_tokens": 20, "completion_tokens": 8}
                writer.write(f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n".encode())
                writer.write(b"data: [DONE]\n\n")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", port, backlog=512)
    await server.serve_forever()


def _event(choice: dict[str, Any]) -> bytes:
    return f"data: {json.dumps({'choices': [choice]})}\n\n".encode()


def _schedule(port: int, endpoints: int, seconds: float) -> list[bool]:
    with tempfile.TemporaryDirectory() as folder:
        command = [*_TAILSPAN, "probe", str(_plan(Path(folder), port, endpoints)), "--format=json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=_ENVIRON) as process:
            time.sleep(seconds)
            memory_mb = _peak_mb(process.pid)
            process.send_signal(SIGINT)
            assert process.stdout is not None
            results = [json.loads(line) for line in process.stdout]
    late_s = sorted(each["late_s"] for each in results)
    instants = Counter((each["endpoint"], round(each["at"], 3)) for each in results)
    gaps = _gaps_s(results)
    p99_s = late_s[int(0.99 * (len(late_s) - 1))]
    outcomes = Counter(each["outcome"] for each in results)
    print(
        f"schedule: {endpoints} endpoints each {EVERY_S:g} s, {len(results)} probes in"
        f" {seconds:g} s: {dict(outcomes)}"
    )
    print(f"  late p50 {_ms(late_s[len(late_s) // 2])}, p99 {_ms(p99_s)}, max {_ms(late_s[-1])}")
    print(f"  resident memory, peak {memory_mb:.0f} MB")
    return [
        _bar(memory_mb < MEMORY_MB, f"memory below {MEMORY_MB:g} MB"),
        _bar(
            set(instants.values()) == {1}
            and all(abs(each - EVERY_S) < 1e-3 for each in gaps)
            and not outcomes["missed"],
            "each intended instant has exactly one result",
        ),
        _bar(p99_s <= LATE_RATIO * EVERY_S, f"late p99 at most {_ms(LATE_RATIO * EVERY_S)}"),
    ]


def _at_once(port: int, endpoints: int) -> list[bool]:
    with tempfile.TemporaryDirectory() as folder:
        plan = _plan(Path(folder), port, endpoints, answer_s=0.4)
        done = subprocess.run(
            [*_TAILSPAN, "probe", str(plan), "--once", "--format=json"],
            stdout=subprocess.PIPE,
            env=_ENVIRON,
            check=False,
        )
    results = [json.loads(line) for line in done.stdout.splitlines()]
    late_s = sorted(each["late_s"] for each in results)
    failed = sum(each["outcome"] != "stop" for each in results)
    print(
        f"at once: {len(results)} probes at one instant, {failed} failed;"
        f" late p50 {_ms(late_s[len(late_s) // 2])}, max {_ms(late_s[-1])}"
    )
    return [
        _bar(
            len(results) == endpoints and late_s[-1] <= LATE_RATIO * EVERY_S,
            f"all start within {_ms(LATE_RATIO * EVERY_S)}",
        )
    ]


async def _network(
    port: int, path: str, seen_s: Callable[[Sequence[Probe]], dict[str, float]]
) -> list[bool]:
    """Print the error of the network time for each delay.

    `seen_s` returns the server's seconds until the first byte. Its keys are `probe-` followed by
    the trace id.
    """
    prober = Prober(
        "here",
        ProbeBudget(DailyLimits(), lambda *_: None, None),
        lambda *_: None,
        ssl.create_default_context(),
        {},
    )
    met = []
    for delay_s in DELAYS_S:
        disturbance = Disturbance(up_s=delay_s / 4, down_s=delay_s * 3 / 4)
        results: list[Probe] = []
        async with network_proxy(port, disturbance) as through:
            for _ in range(PROBES):
                now = asyncio.get_running_loop().time()
                endpoint = _endpoint(f"http://127.0.0.1:{through}{path}")
                due = Due(now, time.time_ns(), now + 10)
                results.append(await prober.send(endpoint, "prompt", False, due))
        seen = await asyncio.to_thread(seen_s, results)
        network_s = [(r.first_event_s or 0) - seen[f"probe-{r.trace_id}"] for r in results]
        added_s = [
            up.delay_s + down.delay_s
            for up, down in zip(disturbance.up, first_events(disturbance.down), strict=True)
        ]
        errors_s = sorted(n - a for n, a in zip(network_s, added_s, strict=True))
        error_s, added = statistics.median(errors_s), statistics.median(added_s)
        print(
            f"network: {_ms(delay_s)} asked for, {_ms(added)} added,"
            f" {_ms(statistics.median(network_s))} found; error p50 {_ms(error_s)},"
            f" p5 {_ms(errors_s[PROBES // 20])}, p95 {_ms(errors_s[-PROBES // 20])}"
        )
        allowed_s = max(2e-3, 0.05 * added)
        met.append(_bar(abs(error_s) <= allowed_s, f"median error at most {_ms(allowed_s)}"))
    return met


async def _seen(port: int) -> dict[str, float]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /seen HTTP/1.1\r\nhost: here\r\n\r\n")
    answer = await reader.read()
    writer.close()
    found: dict[str, float] = json.loads(answer.partition(b"\r\n\r\n")[2])
    return found


def _endpoint(url: str) -> Endpoint:
    return Endpoint(
        name="tiny", kind="openai-chat", url=url, model="tiny", max_tokens=16, prompt_tokens=40
    )


def _plan(folder: Path, port: int, endpoints: int, answer_s: float = ANSWER_S) -> Path:
    each = {"kind": "openai-chat", "model": "tiny", "max_tokens": 16, "prompt_tokens": 40}
    url = f"http://localhost:{port}/{answer_s}"
    plan = {
        "region": "here",
        "every": f"{EVERY_S:g}s",
        "endpoints": [{"name": f"e{n}", "url": url, **each} for n in range(endpoints)],
    }
    path = folder / "probes.yaml"
    path.write_text(json.dumps(plan))  # JSON is valid YAML
    return path


def _gaps_s(results: Sequence[dict[str, Any]]) -> list[float]:
    by_endpoint: dict[str, list[float]] = {}
    for each in results:
        by_endpoint.setdefault(each["endpoint"], []).append(each["at"])
    return [
        later - earlier
        for at in by_endpoint.values()
        for earlier, later in zip(sorted(at), sorted(at)[1:], strict=False)
    ]


def _peak_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1000


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            asyncio.run(_seen(port))
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit("the server did not start")


def _bar(met: bool, what: str) -> bool:
    print(f"  {'met' if met else 'NOT MET'}: {what}")
    return met


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"


_TAILSPAN: Final = (sys.executable, "-c", "from cli.main import main; main()")
_ENVIRON: Final = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path[:2])}


if __name__ == "__main__":
    main()
