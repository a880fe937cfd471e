"""Simulate and explain the cases of `thresholds.py` and `threshold_values.py`."""

import argparse
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any, NamedTuple

from benchmarks._diagnosis_draws import Drawn, drawn, kinds_of
from diagnosis.inputs.arrow import requests_of, servers_of
from diagnosis.inputs.hung_engines import with_unfinished
from diagnosis.inputs.requests import Requests
from diagnosis.inputs.servers import Servers
from simulator import dataset


class SimulatedCase(NamedTuple):
    """A drawn case with its telemetry, as the diagnosis reads it."""

    drawn: Drawn
    requests: Requests
    servers: Servers


def simulated(number: int, seed: int, kind: str, causes: tuple[str, ...]) -> SimulatedCase:
    """Simulate a case. In every second case, the servers have properties that the fitted model does
    not have."""
    case = drawn(number, seed, kind, causes, foreign=number % 2 == 1)
    data = dataset.run(case.config)
    servers = servers_of(data.sample_table(), data.gpu_table(), data.starts)
    requests = with_unfinished(requests_of(data.request_table()), servers.engines)
    return SimulatedCase(case, requests, servers)


def arguments_of(description: str | None, cases: int, seed: int) -> argparse.Namespace:
    """Parse the command line. `cases` and `seed` are the defaults."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=cases)
    parser.add_argument("--seed", type=int, default=seed)
    parser.add_argument(
        "--jobs", type=int, default=2, help="cases to run at the same time; default 2"
    )
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="only modules whose name contains this text"
    )
    return parser.parse_args()


def results(
    arguments: argparse.Namespace, ask: Callable[..., Any], *more: object
) -> Iterator[tuple[str, Any]]:
    """Yield each case's kind and the result of `ask(number, seed, kind, causes, *more)`. Cases are
    yielded when they end. Ctrl-C ends the iteration."""
    kinds = kinds_of(arguments.cases, arguments.seed, None)
    with ProcessPoolExecutor(arguments.jobs) as pool:
        futures = {
            pool.submit(ask, number, arguments.seed, kind, causes, *more): kind
            for number, (kind, causes) in enumerate(kinds)
        }
        try:
            for done, future in enumerate(as_completed(futures), 1):
                yield futures[future], future.result()
                print(f"{done} of {len(futures)}", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            print("stopped", flush=True)
