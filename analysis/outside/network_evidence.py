"""Add the network time that probes measured to the cause `network_or_client`."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from sqlalchemy import Engine

from diagnosis.causes.network_or_client import ID
from diagnosis.claim import Evidence
from diagnosis.explanation import Explanation
from diagnosis.question import Question, Span
from store.probes import probe_count, probe_sample
from store.queries import Window
from store.requests.network_time import server_times
from telemetry.printable import printable
from telemetry.quantiles import FloatArray, interval_ranks, quantile

MOST_REGIONS: Final = 4
"""Maximum number of regions in the evidence: those whose network time grew most."""
LONGEST_NAME: Final = 40
_COLUMNS: Final = ("at_unix_ns", "region", "trace_id", "request_id", "first_event_s")
_SHARES: Final = (0.5, 0.99)

ReadEvidence = Callable[[], Sequence[Evidence]]


def with_network_evidence(explanation: Explanation, read: ReadEvidence) -> Explanation:
    """Add the evidence of probes to the cause `network_or_client`, if this cause was found.

    Args:
        explanation: of a latency.
        read: returns the evidence of probes. It is not called without this cause.
    """
    if not any(each.id == ID for each in explanation.causes):
        return explanation
    more = read()
    causes = [
        replace(each, evidence=[*each.evidence, *more]) if each.id == ID else each
        for each in explanation.causes
    ]
    return replace(explanation, causes=causes)


def network_evidence(engine: Engine, question: Question) -> list[Evidence]:
    """Return the network time of the probes before and in the window, by region.

    A P99 is left out if it is unknown on both sides, because it needs 381 probes.
    """
    before, now = (_by_region(engine, each) for each in (question.baseline, question.window))
    regions = sorted(
        before.keys() & now.keys(), key=lambda region: _grown_s(before[region], now[region])
    )
    return [
        evidence
        for region in regions[: -MOST_REGIONS - 1 : -1]
        for share in _SHARES
        if (evidence := _evidence(region, share, before[region], now[region])) is not None
    ]


def _by_region(engine: Engine, span: Span) -> dict[str, FloatArray]:
    """Return the seconds outside the server until the first event of each paired probe."""
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


def _grown_s(before: FloatArray, now: FloatArray) -> float:
    return float(np.median(now) - np.median(before))


def _evidence(region: str, share: float, before: FloatArray, now: FloatArray) -> Evidence | None:
    values = [_known(each, share) for each in (before, now)]
    if values == [None, None]:
        return None
    name = printable(region, LONGEST_NAME)
    return Evidence(
        f"seconds outside the server, P{share * 100:.0f} of probes from {name}"
        f" ({before.size:,} before, {now.size:,} now)",
        *values,
    )


def _known(values: FloatArray, share: float) -> float | None:
    return quantile(values, share) if interval_ranks(values.size, share) else None
