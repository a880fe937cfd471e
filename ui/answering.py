"""From the store to the answer that the second page shows.

What was read is kept with its answers: another latency of the same stretch is asked of the
same columns, which takes a part of the time that reading them does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from sqlalchemy import Engine

from diagnosis.arrow import requests_of, servers_of
from diagnosis.explain import explain
from diagnosis.explanation import Explanation
from diagnosis.parts import latency_s
from diagnosis.question import Metric, Question, Span
from diagnosis.requests import Requests
from diagnosis.servers import Servers
from store.queries import Window, newest_unix_ns
from ui.distribution import Distribution, distribution
from ui.reading import made_up, told
from ui.server_state import StateLine, state_lines
from ui.sharing import kept_evidence
from ui.view import LATENCIES

SLOWEST = 8
"""Requests that are listed below an answer."""

METRICS = {column: Metric(name) for name, column in LATENCIES.items()}


class Shape(NamedTuple):
    """What is drawn of a stretch before it is explained."""

    grid: Distribution
    lines: Sequence[StateLine]


@dataclass(frozen=True, slots=True)
class Material:
    """Two stretches of time as columns, and the questions that were asked of them."""

    window: Window
    baseline: Window
    requests: Requests
    servers: Servers
    newest_unix_ns: int | None
    simulated: bool
    samples_every_s: int | None
    _answers: dict[Metric, Explanation] = field(default_factory=dict)
    _shapes: dict[Metric, Shape | None] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """How many requests the window has, whatever they tell."""
        at = self.requests.received_unix_ns
        within = (at >= self.window.from_unix_ns) & (at < self.window.to_unix_ns)
        return int(np.count_nonzero(within))

    def explained(self, latency: str) -> Explanation:
        """The answer for one latency."""
        metric = METRICS[latency]
        if metric not in self._answers:
            question = _question(metric, self.window, self.baseline)
            self._answers[metric] = explain(self.requests, self.servers, question)
        return self._answers[metric]

    @property
    def whole(self) -> Window:
        """The window with what it is compared with."""
        return Window(
            min(self.window.from_unix_ns, self.baseline.from_unix_ns),
            max(self.window.to_unix_ns, self.baseline.to_unix_ns),
        )

    def shape(self, latency: str) -> Shape | None:
        """All requests by one latency and time, and the servers' state; None where none has it."""
        metric = METRICS[latency]
        if metric not in self._shapes:
            self._shapes[metric] = self._shape(metric)
        return self._shapes[metric]

    def _shape(self, metric: Metric) -> Shape | None:
        whole = self.whole
        grid = distribution(
            self.requests.received_unix_ns,
            latency_s(self.requests, metric),
            whole.from_unix_ns,
            whole.to_unix_ns,
        )
        return None if grid is None else Shape(grid, state_lines(self.servers.engines, grid.bins))

    def slowest_unix_ns(self, latency: str) -> list[int]:
        """When the slowest of the window by one latency were received, slowest first."""
        inside = self.requests.within(self.window.from_unix_ns, self.window.to_unix_ns)
        values = latency_s(inside, METRICS[latency])
        known = np.flatnonzero(np.isfinite(values))
        if known.size > SLOWEST:
            known = known[np.argpartition(values[known], known.size - SLOWEST)[-SLOWEST:]]
        ordered = known[np.argsort(-values[known], kind="stable")]
        found: list[int] = inside.received_unix_ns[ordered].tolist()
        return found


def read(
    engine: Engine, window: Window, baseline: Window | None, equals: Mapping[str, str]
) -> Material:
    """Read a window and what it is compared with: without a baseline, the stretch before."""
    length_ns = window.to_unix_ns - window.from_unix_ns
    if baseline is None:
        baseline = Window(max(0, window.from_unix_ns - length_ns), window.from_unix_ns)
    span = _question(Metric.TTFT, window, baseline).whole
    whole = Window(span.from_unix_ns, span.to_unix_ns)
    with told():
        found = kept_evidence(engine).read(whole, equals)
        return Material(
            window,
            baseline,
            requests_of(found.requests),
            servers_of(found.engines, found.gpus, found.starts),
            newest_unix_ns(engine),
            made_up(engine, whole),
            found.samples_every_s,
        )


def _question(metric: Metric, window: Window, baseline: Window) -> Question:
    return Question(metric, _span(window), _span(baseline))


def _span(window: Window) -> Span:
    # An address may name an empty range; before 1970 there is no other.
    return Span(window.from_unix_ns, max(window.to_unix_ns, window.from_unix_ns + 1))
