"""Indicators in PromQL: expressions that count all events and the bad events.

Tailspan's counters are exact. vLLM's histograms count the requests below a bucket's bound.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from alerts import vocabulary
from alerts.blindness import (
    EXPECTED,
    HIDING,
    LOOKBACK_S,
    MIN_LEFT_OUT,
    NO_PROBE,
    NONE_SELECTED,
)
from alerts.errors import RuleError
from alerts.expression import Expression, FieldComparison, conjuncts, render
from alerts.objectives import GoodEvents, GoodProbes, Goodput, Objective, QueryRatio, RawRatio
from alerts.prometheus.query_indicators import Queries, Seconds, summed
from alerts.prometheus.rulefile import quoted
from alerts.prometheus.vllm_metrics import HISTOGRAMS, MODEL_LABEL, VllmHistogram
from telemetry import durations


class EventQueries(Protocol):
    """PromQL expressions that count an objective's events over a window."""

    @property
    def about(self) -> str:
        """The sentence in the alert that states how events are counted."""

    @property
    def when_absent(self) -> str:
        """The sentence that states what to check first if the counters are missing."""

    @property
    def blind(self) -> Mapping[str, str]:
        """The PromQL condition for each reason."""

    @property
    def in_explorer(self) -> bool:
        """True if the explorer displays these events."""

    @property
    def staleness_s(self) -> int:
        """After the counters disappear, `present` still has a result for this many seconds."""

    @property
    def present(self) -> str:
        """An expression that has a result while the counters exist."""

    @property
    def slots(self) -> str | None:
        """Groups with a slot, or None if Prometheus does not choose them."""

    def events(self, window: str) -> str:
        """The expression that counts all events."""

    def bad(self, window: str) -> str:
        """The expression that counts the bad events."""


@dataclass(frozen=True, slots=True)
class OwnCounters:
    """Tailspan's own counters, which count with the exact threshold."""

    slo: str
    by: tuple[str, ...] = ()
    about: str = "Tailspan compares each request with the exact threshold."
    when_absent: str = (
        "First: check that Tailspan runs, that Prometheus scrapes it, and that it has this"
        " objective: `tailspan doctor`, `tailspan slo status`."
    )
    in_explorer: bool = True
    staleness_s: int = 0
    slots: str | None = None

    def _of(self, name: str, *more: str) -> str:
        inside = ",".join([f"{vocabulary.SLO}={quoted(self.slo)}", *more])
        return f"{name}{{{inside}}}"

    @property
    def blind(self) -> Mapping[str, str]:
        """The conditions of `alerts.blindness`."""
        window = durations.render(LOOKBACK_S)
        events = OwnCounters(self.slo).events(window)  # without `by`: all groups together

        def excluded(*more: str) -> str:
            return f"sum(increase({self._of(vocabulary.EXCLUDED_EVENTS, *more)}[{window}]))"

        conditions = {}
        for reason in HIDING:
            hidden = excluded(f"{vocabulary.REASON}={quoted(reason)}")
            least = MIN_LEFT_OUT - 0.5  # increase() may return 4.9999 for 5
            conditions[reason] = f"{hidden} > {least}\nand {hidden} > {events}\n"
        conditions[NONE_SELECTED] = (
            f"sum(increase({vocabulary.REQUESTS}[{window}])) > {EXPECTED - 0.5}\n"
            f"and {events} == 0\nand {excluded()} == 0\n"
        )
        return conditions

    @property
    def present(self) -> str:
        """The counter itself."""
        return f"{summed(self.by)}({self._of(vocabulary.EVENTS)})"

    def events(self, window: str) -> str:
        """The expression that counts all events."""
        return f"{summed(self.by)}(increase({self._of(vocabulary.EVENTS)}[{window}]))"

    def bad(self, window: str) -> str:
        """Expression for the bad events: all events minus the good events."""
        good = f"increase({self._of(vocabulary.GOOD_EVENTS)}[{window}])"
        return f"{self.events(window)} - {summed(self.by)}({good})"


@dataclass(frozen=True, slots=True)
class ProbeCounters(OwnCounters):
    """Tailspan's own counters of an objective on probes."""

    about: str = "Tailspan compares each probe with the exact threshold."

    @property
    def blind(self) -> Mapping[str, str]:
        """The condition of `alerts.blindness.blind_to_probes`."""
        window = durations.render(LOOKBACK_S)
        results = f"sum(increase({vocabulary.PROBES}[{window}]))"
        events = OwnCounters(self.slo).events(window)
        return {NO_PROBE: f"{results} > {MIN_LEFT_OUT - 0.5}\nand {events} == 0\n"}


@dataclass(frozen=True, slots=True)
class Buckets:
    """A vLLM histogram, split at one of its bounds."""

    histogram: VllmHistogram
    le: str
    selector: str
    about: str = (
        "The requests are counted by a bucket of vLLM's own histogram, which excludes aborted and"
        " failed requests."
    )
    when_absent: str = (
        "First: check that vLLM runs and that Prometheus scrapes its /metrics (`up`); a vLLM with"
        " --custom-histogram-buckets may lack the bucket."
    )
    blind: Mapping[str, str] = field(default_factory=dict)
    in_explorer: bool = False
    staleness_s: int = 0
    slots: str | None = None

    def _of(self, suffix: str, le: str = "") -> str:
        inside = ",".join(each for each in (self.selector, le) if each)
        return f"{self.histogram.name}_{suffix}" + (f"{{{inside}}}" if inside else "")

    @property
    def present(self) -> str:
        """The bucket's series, which is missing if vLLM uses other bounds."""
        return f"sum({self._bucket})"

    @property
    def _bucket(self) -> str:
        return self._of("bucket", f"le=~{quoted(self.le)}")

    def events(self, window: str) -> str:
        """The expression that counts the observations of all servers whose histogram has this
        bucket.

        With `--custom-histogram-buckets`, some servers may have other bounds. They are left out,
        because all their requests would count as bad.
        """
        whole = f"increase({self._of('count')}[{window}])"
        return f"sum({whole} and ignoring (le) increase({self._bucket}[{window}]))"

    def bad(self, window: str) -> str:
        """The expression that counts the observations above the bound."""
        return f"{self.events(window)} - sum(increase({self._bucket}[{window}]))"


def of_tailspan(objective: Objective) -> EventQueries:
    """The indicator for a Prometheus that scrapes Tailspan."""
    if isinstance(objective.indicator, GoodProbes):
        return ProbeCounters(objective.name, objective.by)
    return _query_counts(objective) or OwnCounters(objective.name, objective.by)


def of_vllm(objective: Objective) -> EventQueries:
    """The indicator for a Prometheus that scrapes vLLM itself.

    Raises:
        RuleError: vLLM's histograms cannot count this objective.
    """
    queried = _query_counts(objective)
    if queried is not None:
        return queried
    where = f"{objective.file}:{objective.line}: {objective.name}"
    goodput = objective.indicator
    if isinstance(goodput, GoodProbes):
        raise RuleError(
            f"{where}: vLLM's histograms do not count probes; allowed: objectives on requests, or"
            " rules for Tailspan"
        )
    assert isinstance(goodput, Goodput)
    if goodput.by:
        raise RuleError(
            f"{where}: vLLM's histograms have no labels for by: {', '.join(goodput.by)};"
            " allowed: no by"
        )
    comparison = _single(goodput, where)
    histogram = HISTOGRAMS[comparison.field]
    return Buckets(histogram, _le(histogram, comparison, where), _selector(goodput.where, where))


def _query_counts(objective: Objective) -> EventQueries | None:
    match objective.indicator:
        case QueryRatio() as queries:
            return Queries(queries, objective.name)
        case RawRatio() as ratio:
            return Seconds(ratio)
        case GoodEvents():
            return None


def _single(goodput: Goodput, where: str) -> FieldComparison:
    allowed = f"allowed: FIELD <= BOUND, with one of {', '.join(HISTOGRAMS)}"
    good = goodput.good
    if len(conjuncts(good)) > 1:
        raise RuleError(
            f"{where}: each of vLLM's histograms has a single latency, so they cannot count"
            f" requests that met all of {render(good)}; {allowed}"
        )
    if (
        not isinstance(good, FieldComparison)
        or good.field not in HISTOGRAMS
        or good.operator not in ("<=", "<")
    ):
        raise RuleError(f"{where}: vLLM has no histogram for this objective; {allowed}")
    if good.operator == "<":
        raise RuleError(f"{where}: a bucket includes its bound: write <=; {allowed}")
    return good


def _le(histogram: VllmHistogram, comparison: FieldComparison, where: str) -> str:
    threshold = float(comparison.value)
    if threshold not in histogram.bounds_s:
        below = max((bound for bound in histogram.bounds_s if bound < threshold), default=None)
        above = min((bound for bound in histogram.bounds_s if bound > threshold), default=None)
        near = " and ".join(f"{bound:g}" for bound in (below, above) if bound is not None)
        raise RuleError(
            f"{where}: {comparison.field} <= {comparison.written} is between two buckets of"
            f" {histogram.name}; the nearest bounds are {near}"
        )
    forms = dict.fromkeys([f"{threshold:g}", repr(threshold)])
    return "|".join(re.escape(form) for form in forms)


def _selector(where: Expression | None, named: str) -> str:
    if where is None:
        return ""
    if isinstance(where, FieldComparison) and where.field == "model" and where.operator == "==":
        return f"{MODEL_LABEL}={quoted(str(where.value))}"
    raise RuleError(
        f'{named}: the histograms of vLLM have only the label model; allowed in where: model == "…"'
    )
