"""Compare the sum of a joined request's phases with the duration that the client measures.

    python benchmarks/joined.py [--requests 60] [--concurrency 2] [--seed 1]

Two real vLLM servers on this machine's CPU, for prefill and for decode, run behind
`rig/disaggregation_proxy.py`. Three proxies get the same number of requests. The first passes the
trace context, the second drops it, and the third drops the request id. The rows are joined without
and with the client's spans.

The goal: each request is joined with both hops. The sum of its phases differs from the duration
that the client measures by at most 5 ms plus the delivery phase. Client and proxy have priority
over other processes on this machine. In a fleet, they run on other machines and do not wait for the
servers' CPUs. The benchmark needs the requirements of `make vllm`. First, it measures joining the
largest number of rows that a query reads.
"""

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parent.parent))

from sqlalchemy import Engine

from rig.disaggregated import Disaggregated, SentRequest, ask_all, calls, report
from rig.install import ProgramUnavailableError, ensure
from rig.program import Tailspan
from store.database import open_database
from store.joined.read import MAX_ROWS, read_joined
from store.joined.roles import ARGUMENT
from store.writer import Writer
from telemetry.joined_request import DELIVERY, JoinedRequest
from telemetry.requests import Basis, Outcome, RequestTimeline, Source
from telemetry.starts import EngineStart, written
from telemetry.window import Window

BAR_S: Final = 0.005
PATIENCE_S: Final = 20.0
PROXIES: Final = {
    "context passed": (),
    "context dropped": ("--drop-context",),
    "request id dropped": ("--drop-request-id",),
}


@contextmanager
def before_other_processes() -> Iterator[None]:
    """Give this thread, and everything that it starts, priority over other processes, if
    permitted."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        print("no permission for SCHED_FIFO: the client and the proxy may wait for a CPU")
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def found_of(
    engine: Engine, seen: Sequence[SentRequest], since_ns: int, basis: str
) -> dict[str, JoinedRequest]:
    """Wait until all requests are joined on this basis. Return the requests by the client's id."""
    wanted = {timed.request_id for _, timed in seen}
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = read_joined(engine, Window(since_ns, time.time_ns()))
        found = {
            name.removesuffix("-0") if name.startswith("cmpl-") else name: each
            for each in answer.requests
            if (name := each.last["request_id"]) is not None
        }
        ready = {name for name, each in found.items() if len(each.hops) > 1 and each.basis == basis}
        if wanted <= ready or time.monotonic() > deadline:
            return found
        time.sleep(0.5)


def line_of(
    title: str, seen: Sequence[SentRequest], found: dict[str, JoinedRequest]
) -> tuple[str, bool]:
    """A line with the figures, and whether every request meets the goal."""
    apart_s, before_s, after_s, within, joined, bases = [], [], [], 0, 0, set()
    for begun_unix_ns, timed in seen:
        each = found.get(timed.request_id or "")
        if each is None:
            continue
        joined += len(each.hops) == 2
        bases.add(each.basis.value)
        summed_s = sum(value for value in each.phases.values() if value is not None)
        apart_s.append(timed.e2e_s - summed_s)
        before_s.append((each.started_unix_ns - begun_unix_ns) / 1e9)
        after_s.append(apart_s[-1] - before_s[-1])
        within += abs(apart_s[-1]) <= BAR_S + (each.phases[DELIVERY] or 0.0)
    line = (
        f"{title:36} {joined:6} of {len(seen):3} {', '.join(sorted(bases)):>10} {within:6}"
        + "".join(map(_median_and_most, (apart_s, before_s, after_s)))
    )
    return line, within == joined == len(seen)


def _median_and_most(values_s: Sequence[float]) -> str:
    ordered = sorted(values_s) or [float("nan")]
    return f" {ordered[len(ordered) // 2] * 1e3:9.2f} {ordered[-1] * 1e3:9.2f}"


def question_cost(folder: Path) -> str:
    """Return a line with the time and the memory of a question that reads `MAX_ROWS` rows."""
    engine = open_database(f"sqlite:///{folder}/rows.db")
    first_ns = time.time_ns() - 3_600 * 10**9
    roles = {"p": "kv_producer", "d": "kv_consumer"}
    starts = [
        EngineStart(
            replica=replica,
            engine=0,
            process=1,
            at_unix_ns=first_ns,
            config=replica,
            arguments=written({ARGUMENT: role}),
        )
        for replica, role in roles.items()
    ]
    with Writer(engine) as writer:
        for begin in range(0, MAX_ROWS, 1_000):
            rows = [_row(number, first_ns) for number in range(begin, begin + 1_000)]
            writer.submit(rows, [], starts=starts if not begin else []).result(60)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun_s = time.process_time()
    answer = read_joined(engine, Window(first_ns, time.time_ns()))
    took_s = time.process_time() - begun_s
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    engine.dispose()
    return (
        f"{len(answer.requests):,} joined requests from {MAX_ROWS:,} rows: {took_s:.1f} s of CPU,"
        f" {grown_kib / 1024:.0f} MiB"
    )


def _row(number: int, first_ns: int) -> RequestTimeline:
    request, decodes = divmod(number, 2)
    return RequestTimeline(
        trace_id=f"{request + 1:032x}",
        span_id=f"{number + 1:016x}",
        request_id=f"cmpl-{request}-0",
        received_unix_ns=first_ns + request * 50_000_000 + decodes * 100_000_000,
        e2e_s=0.4 if decodes else 0.1,
        outcome=Outcome.LENGTH,
        source=Source.INSTRUMENTATION,
        basis=Basis.HTTP,
        replica="d" if decodes else "p",
        engine=0,
        model="tiny",
        tenant=f"tenant-{request % 20}",
        frontend_s=0.005,
        queue_s=0.01,
        queue_held_s=0.0,
        prefill_s=0.02 if decodes else 0.08,
        decode_s=0.36 if decodes else 0.0,
        delivery_s=0.005,
        ttft_s=0.035,
        prompt_tokens=1_000 + request % 500,
        cached_tokens=900 if decodes else 0,
        external_cached_tokens=900 if decodes else 0,
        output_tokens=32 if decodes else 1,
    )


def main(words: Sequence[str] | None = None) -> int:
    """Print the results. The exit status is 1 if the goal is not met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1, help="determines the requests")
    arguments = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as name:
        print(question_cost(Path(name)), flush=True)
    try:
        ensure()
    except ProgramUnavailableError as reason:
        print(reason)
        return 0
    met = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Tailspan(folder, "collect", "--database", f"sqlite:///{folder}/tailspan.db") as up:
            port = up.port("http")
            engine = open_database(f"sqlite:///{folder}/tailspan.db")
            with Disaggregated(folder, port) as servers:
                _, first = servers.proxy()
                ask_all(first, calls(20, arguments.seed + 1_000), 2)  # warm up
                print(
                    f"{'median and most in ms':63} {'within':>6} {'stopwatch - sum':>19}"
                    f" {'before the sum':>19} {'after it':>19}"
                )
                for number, (title, options) in enumerate(PROXIES.items()):
                    seed = arguments.seed + number
                    with before_other_processes():
                        _, proxy = servers.proxy(*options)
                        since_ns = time.time_ns()
                        seen = ask_all(
                            proxy, calls(arguments.requests, seed), arguments.concurrency
                        )
                    found = found_of(engine, seen, since_ns, "router")
                    line, alone = line_of(title, seen, found)
                    print(line, flush=True)
                    report(port, seen)
                    found = found_of(engine, seen, since_ns, "client")
                    line, good = line_of(f"{title}, with the client's span", seen, found)
                    print(line, flush=True)
                    met = met and alone and good
            engine.dispose()
    print(f"goal: {'met' if met else 'NOT met'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
