"""Add the network time of probes to an explanation, as evidence of the cause
`network_or_client`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from sqlalchemy import Engine

from diagnosis.causes.network_or_client import ID
from diagnosis.claim import Evidence
from diagnosis.explanation import Explanation, NetworkGrowth
from diagnosis.question import Question, Span
from store.probes import probe_count, probe_sample
from store.requests.network_time import server_times
from telemetry.printable import printable
from telemetry.quantiles import FloatArray, interval_ranks, quantile, rank_interval
from telemetry.window import Window

MAX_REGIONS: Final = 4
LONGEST_NAME: Final = 40
_COLUMNS: Final = ("at_unix_ns", "region", "trace_id", "request_id", "first_event_s")
_SHARES: Final = (0.5, 0.99)


class NetworkTimes(NamedTuple):
    """The seconds that each probe of a region spent outside the server."""

    region: str
    before_s: FloatArray
    now_s: FloatArray


def with_network_times(explanation: Explanation, times: Sequence[NetworkTimes]) -> Explanation:
    """The explanation with the network times of probes as additional evidence."""
    more = [
        evidence
        for each in times
        for share in _SHARES
        if (evidence := _percentile_evidence(each, share)) is not None
    ]
    causes = [
        replace(each, evidence=[*each.evidence, *more]) if each.id == ID else each
        for each in explanation.causes
    ]
    grown = [growth for each in times if (growth := _growth(each)) is not None]
    return replace(explanation, causes=causes, network=grown)


def network_times(engine: Engine, question: Question) -> list[NetworkTimes]:
    """Return the network times of the regions whose median grew most, the largest growth first."""
    before, now = (_by_region(engine, each) for each in (question.baseline, question.window))
    found = [
        NetworkTimes(region, before[region], now[region]) for region in before.keys() & now.keys()
    ]
    found.sort(key=lambda each: (np.median(each.before_s) - np.median(each.now_s), each.region))
    return found[:MAX_REGIONS]


def _growth(times: NetworkTimes) -> NetworkGrowth | None:
    """The growth of the median network time.

    Return None if its 95 % intervals in the baseline and in the window overlap."""
    sides = [(each, rank_interval(each, 0.5)) for each in (times.before_s, times.now_s)]
    (before_s, usual), (now_s, present) = sides
    if usual is None or present is None or present[0] <= usual[1]:
        return None
    return NetworkGrowth(
        printable(times.region, LONGEST_NAME),
        before_s.size,
        now_s.size,
        float(np.median(before_s)),
        usual,
        float(np.median(now_s)),
        present,
    )


def _by_region(engine: Engine, span: Span) -> dict[str, FloatArray]:
    """For each region, the seconds outside the server until the first event.

    Only probes with a row from the server are included.
    """
    window = Window(span.from_unix_ns, span.to_unix_ns)
    if not probe_count(engine, window):
        return {}
    table = probe_sample(engine, window, _COLUMNS).table
    server_s = np.array(server_times(engine, window, table), dtype=np.float64)
    network_s = np.asarray(table["first_event_s"].to_numpy(), dtype=np.float64) - server_s
    found: dict[str, list[float]] = {}
    for region, value in zip(table["region"].to_pylist(), network_s.tolist(), strict=True):
        if np.isfinite(value):
            found.setdefault(region or "an unknown region", []).append(value)
    return {region: np.array(values) for region, values in found.items()}


def _percentile_evidence(times: NetworkTimes, share: float) -> Evidence | None:
    """A percentile as evidence.

    Return None if it is unknown in both ranges. For example, the P99 of fewer than 381 probes is
    unknown."""
    region, before_s, now_s = times
    values = [_quantile_if_enough(each, share) for each in (before_s, now_s)]
    if values == [None, None]:
        return None
    name = printable(region, LONGEST_NAME)
    return Evidence(
        f"seconds outside the server, P{share * 100:.0f} of probes from {name}"
        f" ({before_s.size:,} before, {now_s.size:,} now)",
        *values,
    )


def _quantile_if_enough(values: FloatArray, share: float) -> float | None:
    return quantile(values, share) if interval_ranks(values.size, share) else None
