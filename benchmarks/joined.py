"""Measures whether the phases of joined requests sum to the client's stopwatch on two real vLLMs.

    python benchmarks/joined.py [--requests 60] [--concurrency 2] [--seed 1]

Two vLLMs on this machine's CPU serve the tiny model, one for prefill and one for decode, behind
`rig/disaggregation_proxy.py`. The client measures each request with its own clock. The program
sends as many requests to a proxy that passes the trace context, to a proxy that drops it, and to a
proxy that passes the context but no request id.

The bar, with the trace context: every request is one joined request with both hops, and its phases
sum to the client's time within 5 ms and its delivery phase. The benchmark has the same requirements
as `make vllm`, and takes about two minutes.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parent.parent))

from sqlalchemy import Engine

from analysis.joined.joined_request import DELIVERY, JoinedRequest
from analysis.joined.read import read_joined
from rig.disaggregated import Disaggregated, calls
from rig.install import NotHereError, ensure
from rig.load import Timed, send_all
from rig.program import Tailspan
from store.database import open_database
from store.queries import Window

BAR_S: Final = 0.005
PATIENCE_S: Final = 20.0
PROXIES: Final = {
    "context passed": (),
    "context dropped": ("--drop-context",),
    "request id dropped": ("--drop-request-id",),
}


def found_of(engine: Engine, seen: Sequence[Timed], since_ns: int) -> dict[str, JoinedRequest]:
    """Wait until the requests are stored; return them by the client's request id."""
    wanted = {timed.request_id for timed in seen if timed.request_id is not None}
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = read_joined(engine, Window(since_ns, time.time_ns()))
        found = {}
        for each in answer.requests:
            name = each.last["request_id"]
            found[name.removesuffix("-0") if name.startswith("cmpl-") else name] = each
        complete = {
            name for name, each in found.items() if len(each.hops) > 1 and each.basis != "engines"
        }
        if wanted <= complete or time.monotonic() > deadline:
            return found
        if wanted <= found.keys() and time.monotonic() > deadline - PATIENCE_S / 2:
            return found
        time.sleep(0.5)


def line_of(title: str, seen: Sequence[Timed], found: dict[str, JoinedRequest]) -> tuple[str, bool]:
    """Return a line of figures, and whether every request meets the bar."""
    apart_s, within, joined, bases = [], 0, 0, set()
    for timed in seen:
        each = found.get(timed.request_id or "")
        if each is None:
            continue
        joined += len(each.hops) == 2
        bases.add(each.basis.value)
        summed_s = sum(value for value in each.phases.values() if value is not None)
        apart_s.append(timed.e2e_s - summed_s)
        within += abs(apart_s[-1]) <= BAR_S + (each.phases[DELIVERY] or 0.0)
    ordered = sorted(apart_s) or [float("nan")]
    line = (
        f"{title:20} {joined:6} of {len(seen):3} {', '.join(sorted(bases)):>10}"
        f" {within:6} {ordered[len(ordered) // 2] * 1e3:9.2f} {ordered[-1] * 1e3:9.2f}"
    )
    return line, within == joined == len(seen)


def main(words: Sequence[str] | None = None) -> int:
    """Measure and print. The exit status is 1 if the bar is not met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--concurrency", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1, help="determines the requests")
    asked = parser.parse_args(words)
    try:
        ensure()
    except NotHereError as reason:
        print(reason)
        return 0
    met = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Tailspan(folder, "collect", "--database", f"sqlite:///{folder}/tailspan.db") as up:
            port = up.port("http")
            engine = open_database(f"sqlite:///{folder}/tailspan.db")
            with Disaggregated(folder, port) as servers:
                _, first = servers.proxy()
                send_all(first, calls(20, asked.seed + 1_000), 2)  # the first steps are slow
                print(
                    f"{'proxy':20} {'joined':>13} {'basis':>10} {'within':>6} {'median ms':>9}"
                    f" {'most ms':>9}   (client's stopwatch - sum of the phases)"
                )
                for number, (title, options) in enumerate(PROXIES.items()):
                    _, proxy = servers.proxy(*options)
                    since_ns = time.time_ns()
                    seed = asked.seed + number
                    seen = send_all(proxy, calls(asked.requests, seed), asked.concurrency)
                    line, good = line_of(title, seen, found_of(engine, seen, since_ns))
                    print(line, flush=True)
                    met = good if number == 0 else met
            engine.dispose()
    print(f"bar (context passed: all within 5 ms + delivery): {'met' if met else 'NOT met'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
