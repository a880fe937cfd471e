"""Read the Root cause page's data. It is cached with the explanations of all latencies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from sqlalchemy import Engine

from alerts.evaluation.group_slots import expanded
from alerts.groups import base
from alerts.objectives import GoodProbes, Goodput, Objective
from analysis.access.evidence import explained_where
from analysis.baseline import Baseline, usual_baseline, within
from analysis.explain import windows_of
from analysis.incident import IncidentVerdict, leading_verdict
from analysis.incident_answer import StoredAnswer, stored_answer
from analysis.outside.network_evidence import NetworkTimes, network_times, with_network_times
from analysis.over_time.columns import highest
from analysis.stored_data import stored_data
from analysis.thresholds import metrics_of, thresholds
from diagnosis.explain import explain
from diagnosis.explanation import Explanation, ExplanationVerdict
from diagnosis.inputs.arrow import requests_of, servers_of
from diagnosis.inputs.requests import Requests
from diagnosis.inputs.servers import Servers
from diagnosis.latency.parts import selected_latency_s
from diagnosis.question import Metric, Question, Span
from telemetry.incidents import IncidentRow
from telemetry.window import Window
from ui.frame.read_cache import cached_evidence
from ui.frame.view import LATENCIES
from ui.kit.unreadable import store_errors
from ui.views.root_cause.distribution import LatencyDistribution, distribution
from ui.views.root_cause.server_state import StateLine, state_lines

SLOWEST = 8

IncidentKey = tuple[str, str, int]
METRICS = {column: Metric(name) for name, column in LATENCIES.items()}


class Heatmap(NamedTuple):
    """The data of the heatmap, which is drawn before the explanation."""

    grid: LatencyDistribution
    lines: Sequence[StateLine]


@dataclass(frozen=True)
class RootCauseData:
    """The requests of a range and its baseline, and the results of the analysis.

    `equals` selects the requests to analyse.
    """

    window: Window
    baseline: Window
    equals: Mapping[str, str]
    objectives: Sequence[Objective]
    incidents: Sequence[IncidentRow]
    """The incidents that overlap the window. The earliest incident is first."""
    before: IncidentRow | None
    """The default baseline ends before this incident. It is None if there is no such incident."""
    known: Sequence[IncidentRow]
    """The incidents in and before the window."""
    burned: Mapping[str, Objective]
    """The objectives and groups of the incidents in `known`."""
    requests: Requests
    servers: Servers
    newest_unix_ns: int | None
    simulated: bool
    samples_every_s: int | None
    network: Sequence[NetworkTimes]
    stored: Mapping[IncidentKey, StoredAnswer] = field(default_factory=dict)
    _answers: dict[tuple[Metric, tuple[str, ...]], Explanation] = field(default_factory=dict)
    _heatmaps: dict[Metric, Heatmap | None] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """The number of requests in the window that match the filters."""
        return len(self._inside)

    @cached_property
    def _inside(self) -> Requests:
        found = self.requests.within(self.window.from_unix_ns, self.window.to_unix_ns)
        return found.rows(found.matching(self.equals))

    def explained(self, latency: str, *, by_size: bool = False) -> Explanation:
        """The explanation of one latency.

        With `by_size`, an incident is detected by the latency's growth, not by the objectives.
        """
        return self._explain_metric(METRICS[latency], () if by_size else self.objectives)

    def verdict(self, incident: IncidentRow) -> IncidentVerdict | None:
        """The verdict on an incident, about all latencies of the incident's objective."""
        objective = self.burned.get(incident.slo)
        if objective is None or not isinstance(objective.indicator, Goodput):
            return None
        metrics = metrics_of(objective.indicator)
        return leading_verdict([self._explain_metric(metric, [objective]) for metric in metrics])

    def stored_answer(self, incident: IncidentRow) -> StoredAnswer | None:
        """The stored answer of an incident, or None."""
        return self.stored.get(key_of(incident))

    def stored_shares(self, explanation: Explanation) -> Explanation | None:
        """The explanation with shares from a stored answer to the same question, or None."""
        for answer in self.stored.values():
            if answer.replay_took_too_long:
                continue
            known = answer.explained(explanation.question)
            if (
                known is not None
                and known.verdict is explanation.verdict is ExplanationVerdict.INCIDENT
            ):
                return replace(
                    explanation,
                    causes=known.causes,
                    others=known.others,
                    method=known.method,
                    unexplained=known.unexplained,
                    unexplained_low=known.unexplained_low,
                    unexplained_high=known.unexplained_high,
                    replay=known.replay,
                    not_replayed=known.not_replayed,
                )
        return None

    def counts_probes(self, incident: IncidentRow) -> bool:
        """Whether an incident's objective counts probes. If so, the page cannot explain it."""
        objective = self.burned.get(incident.slo)
        return objective is not None and isinstance(objective.indicator, GoodProbes)

    @property
    def request_incidents(self) -> list[IncidentRow]:
        """The incidents that overlap the window, without incidents of objectives on probes."""
        return [each for each in self.incidents if not self.counts_probes(each)]

    def _explain_metric(self, metric: Metric, objectives: Sequence[Objective]) -> Explanation:
        key = metric, tuple(each.name for each in objectives)
        if key not in self._answers:
            question = self._question(metric)
            explanation = explain(
                self.requests, self.servers, question, thresholds(objectives, metric)
            )
            self._answers[key] = with_network_times(explanation, self.network)
        return self._answers[key]

    def _question(self, metric: Metric) -> Question:
        return _question(metric, self.window, self.baseline, self.equals)

    @property
    def whole(self) -> Window:
        """The range from the baseline's start to the window's end, or only the window if they are
        far apart."""
        found = windows_of(self._question(Metric.TTFT))
        return found[0] if len(found) == 1 else self.window

    def heatmap(self, latency: str) -> Heatmap | None:
        """Requests by time and latency, and the servers' state, or None without known latencies."""
        metric = METRICS[latency]
        if metric not in self._heatmaps:
            self._heatmaps[metric] = self._heatmap(metric)
        return self._heatmaps[metric]

    def _heatmap(self, metric: Metric) -> Heatmap | None:
        whole = self.whole
        grid = distribution(
            self.requests.received_unix_ns,
            selected_latency_s(self.requests, self._question(metric)),
            whole.from_unix_ns,
            whole.to_unix_ns,
        )
        return None if grid is None else Heatmap(grid, state_lines(self.servers.engines, grid.bins))

    def slowest_unix_ns(self, latency: str) -> list[int]:
        """When the window's slowest requests were received. The slowest request is first."""
        inside = self._inside
        values = selected_latency_s(inside, self._question(METRICS[latency]))
        found: list[int] = inside.received_unix_ns[highest(values, SLOWEST)].tolist()
        return found


def read_root_cause(
    engine: Engine,
    window: Window,
    baseline: Window | None,
    equals: Mapping[str, str],
    objectives: Sequence[Objective] = (),
    known: Sequence[IncidentRow] = (),
    stored: Mapping[IncidentKey, StoredAnswer] = MappingProxyType({}),
) -> RootCauseData:
    """Read a window and its baseline.

    Args:
        baseline: if it is None, the previous range without an incident is used. If the data of that
            range was deleted, the previous range is used.
        equals: labels of the requests to analyse.
        known: the incidents in and before the window.

    Raises:
        NotAllowed: the labels select requests that the reader may not see.
    """
    equals = {k: v for k, v in explained_where(engine, equals).items() if v is not None}
    span = _span(window)
    chosen = Baseline(_span(baseline)) if baseline else usual_baseline(span, known)
    burned = [each for each in objectives if each.name in {base(row.slo) for row in known}]
    kept = cached_evidence(engine)
    with store_errors():
        found = kept.read(Question(Metric.TTFT, span, chosen.span))
        requests = requests_of(found.requests)
        if chosen.before and not len(
            requests.within(chosen.span.from_unix_ns, chosen.span.to_unix_ns)
        ):
            chosen = usual_baseline(span, [])
            found = kept.read(Question(Metric.TTFT, span, chosen.span))
            requests = requests_of(found.requests)
        against = Window(chosen.span.from_unix_ns, chosen.span.to_unix_ns)
        return RootCauseData(
            window,
            against,
            equals,
            objectives,
            within(span, known),
            chosen.before,
            known,
            {each.name: each for each in expanded(engine, burned)},
            requests,
            servers_of(found.engines, found.gpus, found.starts, found.cold_starts),
            *stored_data(engine, window, against),
            found.samples_every_s,
            network_times(engine, Question(Metric.TTFT, span, chosen.span)),
            stored,
        )


def key_of(incident: IncidentRow) -> IncidentKey:
    """The key that identifies an incident."""
    return incident.slo, incident.severity, incident.fired_unix_s


def stored_answers(
    engine: Engine, objectives: Sequence[Objective], incidents: Sequence[IncidentRow]
) -> dict[IncidentKey, StoredAnswer]:
    """The stored answers of incidents that have one."""
    names = {base(row.slo) for row in incidents}
    burned = expanded(engine, [each for each in objectives if each.name in names])
    by_name = {each.name: each for each in burned}
    found = {}
    for row in incidents:
        objective = by_name.get(row.slo)
        answer = None if objective is None else stored_answer(engine, objective, row)
        if answer is not None:
            found[key_of(row)] = answer
    return found


def _question(
    metric: Metric, window: Window, baseline: Window, equals: Mapping[str, str]
) -> Question:
    return Question(metric, _span(window), _span(baseline), equals)


def _span(window: Window) -> Span:
    # An empty range is extended by 1 ns. Its start must not move before 1970.
    return Span(window.from_unix_ns, max(window.to_unix_ns, window.from_unix_ns + 1))
