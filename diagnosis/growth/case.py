"""A case: a question about a latency, and the requests and samples that the detectors examine.

Pure. The window is divided into blocks of about a minute. The *hot blocks* are the fewest blocks
that contain at least 90 % of the window's slow requests. They also include earlier blocks in which
the queue of these requests grew. In results, "before" means the baseline, and "now" means the hot
blocks.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from diagnosis.growth.backlog import backlogged
from diagnosis.growth.demand import Demand, at_servers, before_at, demand_of, grew
from diagnosis.growth.own_work import OwnWork, uncached_tokens
from diagnosis.growth.terms import TERM_INDEX, TERMS, WorkloadGrowth, excess_s
from diagnosis.inputs.requests import MIN_REQUESTS, BoolArray, FloatArray, IntArray, Requests
from diagnosis.inputs.server_labels import replicas_of, where_of
from diagnosis.inputs.servers import Samples, Servers
from diagnosis.latency.parts import gaps
from diagnosis.latency.tail import SortedLatencies
from diagnosis.question import Metric, Question, Span

_BODY_ROWS = 20_000
"""Maximum number of requests for a mean over all requests. If there are more requests, every k-th
request is used."""
_COVERED = 0.9
"""Minimum share of the slow requests in the hot blocks. The slow servers also serve at least this
share of the slow requests."""
_USUAL = 0.99
"""A wait counts as a wait in a backlog only if it is longer than this quantile of the baseline's
waits."""
_MIN_WAIT_S = 0.5
"""Minimum wait, in seconds, that counts as a wait in a backlog. In 99 % of the simulated cases
without a fault, the quantile `_USUAL` of the waits is at most 0.01 s."""


@dataclass(frozen=True)
class DiagnosisCase:
    """The requests and samples that detectors examine. `now` and `before` contain all requests of
    the window and of the baseline. `slow` and `usual` contain the slowest requests of `now` and of
    `before`."""

    question: Question
    servers: Servers
    now: Requests
    before: Requests
    slow_rows: IntArray
    usual_rows: IntArray
    slow_blocks: IntArray
    block_count: int
    work: OwnWork
    only: str | None = None
    """The only server to examine, or None for all servers with slow requests."""
    cache: dict[object, Any] = field(default_factory=dict)
    """Results that several functions share. The key is usually the function that computed the
    result."""

    @cached_property
    def slow(self) -> Requests:
        """The window's slow requests."""
        return self.now.rows(self.slow_rows)

    @cached_property
    def usual(self) -> Requests:
        """The baseline's slow requests."""
        return self.before.rows(self.usual_rows)

    @cached_property
    def terms(self) -> FloatArray:
        """Return the excess of each term of each slow request, in seconds: (n, len(TERMS)).

        The excess is over the term's mean in the baseline's slow requests."""
        return excess_s(self.slow, self.usual, self.question.metric, self.work, self.workload)

    def grown_s(self, *terms: str) -> float:
        """Return the growth of the sum of the given terms, in seconds, as a mean over the slow
        requests."""
        return float(self.terms[:, [TERM_INDEX[term] for term in terms]].sum(axis=1).mean())

    def at(self, server: str) -> "DiagnosisCase":
        """Return a copy of the case that examines only the server `server`."""
        found: DiagnosisCase = self.cache.setdefault(
            ("at", server), replace(self, only=server, cache={})
        )
        return found

    # --- where and when the slow requests are ------------------------------------------------

    @cached_property
    def hot_blocks(self) -> BoolArray:
        """Return whether each block of time is hot: (block_count,)."""
        counts = np.bincount(self.slow_blocks, minlength=self.block_count)
        order = np.argsort(-counts, kind="stable")
        cumulative = np.cumsum(counts[order])
        wanted = int(np.searchsorted(cumulative, _COVERED * cumulative[-1])) + 1
        hot = np.zeros(self.block_count, dtype=np.bool_)
        hot[order[:wanted]] = True
        return backlogged(hot, *self._waiting())

    def _waiting(self) -> tuple[FloatArray, FloatArray]:
        """Return when requests at the slow servers began and stopped waiting.

        Only requests that waited longer than usual are included. The unit is a block, from the
        start of the window."""
        usual_s = _quantile(_waited_s(self.before), _USUAL) or 0.0
        waited_s = _waited_s(self.now)
        waited = waited_s > max(usual_s, _MIN_WAIT_S)
        if self.slow_servers:
            waited &= self.now.server.is_any(self.slow_servers)
        late = np.flatnonzero(waited)
        window = self.question.window
        each_s = window.seconds / self.block_count
        from_s = (self.now.received_unix_ns[late] - window.from_unix_ns) / 1e9
        return from_s / each_s, (from_s + waited_s[late]) / each_s

    def _hot(self, at_unix_ns: IntArray) -> BoolArray:
        window = self.question.window
        place = (at_unix_ns - window.from_unix_ns) / (window.to_unix_ns - window.from_unix_ns)
        inside = (place >= 0) & (place < 1)
        block = np.clip((place * self.block_count).astype(np.int64), 0, self.block_count - 1)
        return np.asarray(inside & self.hot_blocks[block])

    @property
    def hot_s(self) -> float:
        """Total length of the hot blocks, in seconds."""
        return self.question.window.seconds * float(self.hot_blocks.mean())

    @cached_property
    def slow_servers(self) -> tuple[str, ...]:
        """The servers of nearly all slow requests, the server with the most slow requests first."""
        if self.only is not None:
            return (self.only,)
        server = self.slow.server
        counts = np.bincount(server.codes[server.codes >= 0], minlength=len(server.values))
        order = np.argsort(-counts, kind="stable")
        cumulative = np.cumsum(counts[order])
        if not cumulative.size or not cumulative[-1]:
            return ()
        wanted = int(np.searchsorted(cumulative, _COVERED * cumulative[-1])) + 1
        return tuple(server.values[place] for place in order[:wanted])

    @cached_property
    def slow_replicas(self) -> tuple[str, ...]:
        """The slow servers' replicas, in the order of `slow_servers`."""
        return replicas_of(self.slow_servers, self.servers.divided)

    def where_of(self, *servers: str) -> dict[str, str]:
        """Return the labels (replica, engine) that all given servers have in common."""
        return where_of(servers, self.servers.divided)

    @property
    def where(self) -> dict[str, str]:
        """The labels that the slow servers have in common. It is empty if all servers are slow."""
        known = self.now.server.present
        return self.where_of(*self.slow_servers) if len(self.slow_servers) < len(known) else {}

    @cached_property
    def hot_requests(self) -> Requests:
        """All requests that were received in the hot blocks."""
        return self.now.rows(self._hot(self.now.received_unix_ns))

    # --- what the servers report -------------------------------------------------------------

    def rows_now(self, samples: Samples, *, whole_replicas: bool = False) -> BoolArray:
        """Select the samples from the hot blocks, of the slow servers or of their whole
        replicas."""
        return self._hot(samples.at_unix_ns) & self._of_victims(samples, whole_replicas)

    def rows_from_first_to_last(self, samples: Samples) -> BoolArray:
        """Select the samples of the slow servers from the first to the last sample in a hot
        block."""
        rows, at_unix_ns = self.rows_now(samples), samples.at_unix_ns
        if not rows.any():
            return rows
        first, last = at_unix_ns[rows].min(), at_unix_ns[rows].max()
        inside: BoolArray = (at_unix_ns >= first) & (at_unix_ns <= last)
        return inside & self._of_victims(samples, whole_replicas=False)

    def rows_before(self, samples: Samples, *, whole_replicas: bool = False) -> BoolArray:
        """Select the samples of the slow servers in the baseline."""
        inside = _within(samples, self.question.baseline)
        return inside & self._of_victims(samples, whole_replicas)

    def _of_victims(self, samples: Samples, whole_replicas: bool) -> BoolArray:
        if not self.slow_servers:
            return np.ones(len(samples), dtype=np.bool_)
        if samples.server is not None and not whole_replicas:
            return samples.server.is_any(self.slow_servers)
        return samples.replica.is_any(self.slow_replicas)  # a GPU has no engine number

    def mean(self, name: str) -> tuple[float | None, float | None]:
        """Return an engine gauge's mean, before and now."""
        engines = self.servers.engines
        return engines.mean(name, self._engines_before), engines.mean(name, self._engines_now)

    def rate(self, name: str) -> tuple[float | None, float | None]:
        """Return an engine counter's increase per second and process, before and now."""
        engines = self.servers.engines
        return engines.rate(name, self._engines_before), engines.rate(name, self._engines_now)

    def ratio(self, part: str, whole: str) -> tuple[float | None, float | None]:
        """Return the increase of counter `part` / the increase of counter `whole`, before and
        now."""
        engines = self.servers.engines
        return (
            engines.ratio(part, whole, self._engines_before),
            engines.ratio(part, whole, self._engines_now),
        )

    def p99(self, name: str) -> tuple[float | None, float | None]:
        """Return an engine gauge's 99th percentile, before and now."""
        engines = self.servers.engines
        return (
            engines.quantile(name, 0.99, self._engines_before),
            engines.quantile(name, 0.99, self._engines_now),
        )

    @cached_property
    def _engines_now(self) -> BoolArray:
        return self.rows_now(self.servers.engines)

    @cached_property
    def _engines_before(self) -> BoolArray:
        return self.rows_before(self.servers.engines)

    # --- what the requests report ------------------------------------------------------------

    def slow_means(self, name: str) -> tuple[float | None, float | None]:
        """Return a column's mean over the slow requests of the baseline and of the window."""
        return _mean(self.usual.number(name)), _mean(self.slow.number(name))

    def quantiles(self, name: str, q: float) -> tuple[float | None, float | None]:
        """Return a column's quantile over all requests, before and now."""
        return _quantile(self.before.number(name), q), _quantile(self.hot_requests.number(name), q)

    # --- traffic -----------------------------------------------------------------------------

    @cached_property
    def demand(self) -> Demand:
        """The changes of the traffic."""
        return demand_of(
            self.before,
            self.baseline_observed_s,
            self.hot_requests,
            self.hot_s,
            self.slow_servers,
            self.work,
        )

    @property
    def baseline_observed_s(self) -> float:
        """Seconds from the baseline's first request to the end of the baseline."""
        whole = self.question.baseline
        received = self.before.received_unix_ns
        first = int(received.min()) if received.size else whole.from_unix_ns
        return max((whole.to_unix_ns - first) / 1e9, 1.0)

    @cached_property
    def workload(self) -> WorkloadGrowth:
        """Whether prompts and outputs became longer."""
        before, now = self.before, self.hot_requests
        metric = self.question.metric
        outputs = (
            (gaps(before, metric), gaps(now, metric))
            if metric is Metric.FIRST_CONTENT
            else (before.number("output_tokens"), now.number("output_tokens"))
        )
        return WorkloadGrowth(
            grew(before.number("prompt_tokens"), now.number("prompt_tokens")), grew(*outputs)
        )

    @cached_property
    def body(self) -> FloatArray:
        """Return the growth of each term of E2E, in seconds: (len(TERMS),). It is the mean over all
        requests to the slow servers now, minus the mean before."""
        now = _some(_complete(at_servers(self.hot_requests, self.slow_servers)))
        before = _some(_complete(before_at(self.before, self.slow_servers)))
        if not len(now) or not len(before):
            return np.zeros(len(TERMS))
        found = excess_s(now, before, Metric.E2E, self.work, self.workload).mean(axis=0)
        return np.asarray(found)

    @cached_property
    def slowdowns(self) -> tuple[float | None, float | None]:
        """Slowdown factors of the requests' own work: (prefill, decode).

        A factor is the sum of the measured durations, divided by the sum of the durations expected
        on the baseline's machine. Only requests with sizes that also occur in the baseline are
        used.
        """
        now, work = _complete(at_servers(self.hot_requests, self.slow_servers)), self.work
        prefilled, decoded = (
            _some(now.rows(work.prefill_seen(now))),
            _some(now.rows(work.decode_seen(now))),
        )
        return (
            _over(
                prefilled.number("prefill_own_s"),
                work.prefill_s(prefilled.number("prompt_tokens"), uncached_tokens(prefilled)),
            ),
            _over(
                decoded.number("decode_own_s"),
                work.decode_s(decoded.number("prompt_tokens"), decoded.number("output_tokens")),
            ),
        )

    @property
    def machine_slowdown(self) -> float | None:
        """The slowdown factor of the machine: the smaller factor of prefill and decode.

        A slower machine slows down both prefill and decode.

        If the factor of prefill is unknown, the factor of decode is used. If the factor of decode
        is unknown, the result is None.
        """
        prefill, decode = self.slowdowns
        return decode if decode is None or prefill is None else min(prefill, decode)


def _complete(requests: Requests) -> Requests:
    """Return the requests whose E2E is known."""
    return requests.rows(np.isfinite(requests.number("e2e_s")))


def _mean(values: FloatArray) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else None


def _waited_s(requests: Requests) -> FloatArray:
    return np.asarray(
        np.nan_to_num(requests.number("frontend_s")) + np.nan_to_num(requests.number("queue_s"))
    )


def _quantile(values: FloatArray, q: float) -> float | None:
    known = values[np.isfinite(values)]
    return float(np.quantile(known, q)) if known.size else None


def _over(actual: FloatArray, expected: FloatArray) -> float | None:
    known = np.isfinite(actual) & np.isfinite(expected) & (expected > 0)
    if known.sum() < MIN_REQUESTS:
        return None
    return float(actual[known].sum() / expected[known].sum())


def _within(samples: Samples, span: Span) -> BoolArray:
    at = samples.at_unix_ns
    return np.asarray((at >= span.from_unix_ns) & (at < span.to_unix_ns))


def _some(requests: Requests) -> Requests:
    if len(requests) <= _BODY_ROWS:
        return requests
    return requests.rows(np.linspace(0, len(requests) - 1, _BODY_ROWS).astype(np.int64))


def case_of(
    question: Question,
    servers: Servers,
    now: Requests,
    before: Requests,
    tails: tuple[SortedLatencies, SortedLatencies],
    share: float,
    work: OwnWork,
) -> DiagnosisCase:
    """Build a case from the tails of window and baseline."""
    slow, usual = tails
    return DiagnosisCase(
        question=question,
        servers=servers,
        now=now,
        before=before,
        slow_rows=slow.rows[: slow.tail(share)],
        usual_rows=usual.rows[: usual.tail(share)],
        slow_blocks=slow.blocks[: slow.tail(share)],
        block_count=slow.block_count,
        work=work,
    )
