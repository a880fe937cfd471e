"""Find engines that have requests in flight and complete no steps."""

import time
from collections.abc import Iterator
from typing import Final

from sqlalchemy import Engine

from analysis.database import opened_to_read
from analysis.replica_checks import replica_progress
from cli.checks.findings import CheckFinding
from cli.options.shared import state_url
from telemetry.engines import HUNG_REMEDY
from telemetry.hung_replicas import HungReplica
from telemetry.printable import printable
from telemetry.store_errors import StoreError

_WIDEST: Final = 120
_MAX_NAMED: Final = 20

UNFINISHED: Final = (
    "When a running request exceeds a latency threshold, SLOs count it as bad immediately. Other"
    " requests count when they end."
)


def steps(url: str | None) -> Iterator[CheckFinding]:
    """Yield a finding for each replica that hangs. If no replica hangs, yield one finding."""
    try:
        with opened_to_read(url, state_url()) as engine:
            found = replica_progress(engine, time.time_ns())
    except StoreError:
        return  # another check reports this error
    for each in found.hung[:_MAX_NAMED]:
        yield CheckFinding("steps", False, sentence(each), HUNG_REMEDY)
    if found.replicas and not found.hung:
        yield CheckFinding("steps", True, f"replicas that report: {found.replicas}; none hangs")


def hung_lines(engine: Engine, at_unix_ns: int) -> list[str]:
    """A line for each replica that hangs."""
    hung = replica_progress(engine, at_unix_ns).hung
    return [f"{sentence(each)}. {UNFINISHED} {HUNG_REMEDY}" for each in hung[:_MAX_NAMED]]


def sentence(each: HungReplica) -> str:
    """Describe a replica that hangs."""
    requests = "1 request" if each.in_flight == 1 else f"{each.in_flight:,} requests"
    return (
        f"{printable(each.replica, _WIDEST)} has {requests} running, but {each.no_step_text}"
        f" for {each.last_step_age_s:.0f} s"
    )
