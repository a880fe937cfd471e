"""The latest result of each probed endpoint, and counts of results."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from exporters.definitions.probe_series import (
    COST,
    DURATION,
    GAUGES,
    LAST,
    RESULTS,
    SUCCESS,
    UNLISTED,
)
from exporters.families import counter, gauge
from exporters.format.text import Family
from exporters.totals.engines import AHEAD_NS
from exporters.totals.recent_requests import RecentIds
from telemetry.probes import Probe, ProbeOutcome

MAX_ENDPOINTS: Final = 1_000
"""Maximum number of endpoints, over all regions."""
STALE_NS: Final = 300 * 10**9
"""An endpoint's gauges are omitted after this time without results. It is Prometheus' default
lookback."""
STALE_INTERVALS: Final = 3
"""An endpoint's gauges stay for at least this many probe intervals, even if that is longer than
`STALE_NS`."""

ProbeKey = tuple[str, str, str]
"""Region, endpoint and model."""


@dataclass(slots=True)
class _Endpoint:
    latest: Probe | None = None
    """The latest probe that was sent and not stopped."""
    measured: Probe | None = None
    """The latest probe that was sent and not stopped, and that no cache answered."""
    interval_ns: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    cost_usd: float | None = None

    def add(self, probe: Probe, now_unix_ns: int) -> None:
        self.outcomes[str(probe.outcome)] += 1
        if probe.cost_usd is not None:
            self.cost_usd = (self.cost_usd or 0.0) + probe.cost_usd
        if not probe.outcome.sent or probe.outcome is ProbeOutcome.ABORT:
            return
        latest_unix_ns = now_unix_ns + AHEAD_NS
        if probe.outcome is not ProbeOutcome.CACHED and _replaces(
            probe, self.measured, latest_unix_ns
        ):
            self.measured = probe
        if _replaces(probe, self.latest, latest_unix_ns):
            if self.latest is not None:
                self.interval_ns = max(0, probe.at_unix_ns - self.latest.at_unix_ns)
            self.latest = probe

    def if_current(self, probe: Probe | None, now_unix_ns: int) -> Probe | None:
        if probe is None:
            return None
        age_ns = now_unix_ns - probe.at_unix_ns
        stale_ns = max(STALE_NS, STALE_INTERVALS * self.interval_ns)
        return probe if -AHEAD_NS <= age_ns <= stale_ns else None


class ProbeTotals:
    """The results of each region, endpoint and model. A result that arrives twice counts once."""

    def __init__(self) -> None:
        self._endpoints: dict[ProbeKey, _Endpoint] = {}
        self._recent = RecentIds()
        self._unlisted = 0

    def add(self, probes: Sequence[Probe], now_unix_ns: int) -> list[Probe]:
        """Add results, and return the results that were not added before."""
        ids, spans = [each.trace_id for each in probes], [each.span_id for each in probes]
        new = [probes[place] for place in self._recent.new_among(ids, spans)]
        for probe in new:
            key = (probe.region or "", probe.endpoint, probe.model or "")
            known = self._endpoints.get(key)
            if known is None:
                if len(self._endpoints) >= MAX_ENDPOINTS:
                    self._unlisted += 1
                    continue
                known = self._endpoints[key] = _Endpoint()
            known.add(probe, now_unix_ns)
        return new

    def families(self, now_unix_ns: int) -> list[Family]:
        """Return the families."""
        return list(self._families(now_unix_ns)) if self._endpoints else []

    def _families(self, now_unix_ns: int) -> Iterator[Family]:
        latest = {
            key: probe
            for key, each in self._endpoints.items()
            if (probe := each.if_current(each.latest, now_unix_ns)) is not None
        }
        measured = {
            key: probe
            for key, each in self._endpoints.items()
            if (probe := each.if_current(each.measured, now_unix_ns)) is not None
        }
        if latest:
            yield gauge(SUCCESS, {key: int(each.outcome.succeeded) for key, each in latest.items()})
            yield gauge(LAST, {key: each.at_unix_ns / 1e9 for key, each in latest.items()})
        phases = {
            (*key, phase): value_s
            for key, each in measured.items()
            for phase, value_s in _phases_s(each).items()
            if value_s is not None
        }
        if phases:
            yield gauge(DURATION, phases)
        for name, of in GAUGES.items():
            values = {
                key: value
                for key, each in measured.items()
                if (value := getattr(each, name)) is not None
            }
            if values:
                yield gauge(of, values)
        yield counter(
            RESULTS,
            {
                (*key, outcome): count
                for key, each in self._endpoints.items()
                for outcome, count in each.outcomes.items()
            },
        )
        costs = {
            key: each.cost_usd for key, each in self._endpoints.items() if each.cost_usd is not None
        }
        if costs:
            yield counter(COST, costs)
        yield counter(UNLISTED, {(): self._unlisted})


def _replaces(probe: Probe, known: Probe | None, latest_unix_ns: int) -> bool:
    """Whether a result replaces the known result. If the known result is later than
    `latest_unix_ns`, a clock was ahead when it was stored, so any result replaces it."""
    return known is None or not probe.at_unix_ns <= known.at_unix_ns <= latest_unix_ns


def _phases_s(probe: Probe) -> dict[str, float | None]:
    first_s, e2e_s = probe.first_event_s, probe.e2e_s
    return {
        "late": probe.late_s,
        "resolve": probe.dns_s,
        "connect": probe.connect_s,
        "tls": probe.tls_s,
        "processing": e2e_s if first_s is None else first_s,
        "transfer": None if first_s is None or e2e_s is None else e2e_s - first_s,
    }
