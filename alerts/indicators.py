"""How many events, and how many bad ones: what an objective's indicator is in PromQL.

Four ways to count: Tailspan's own counters (exact), other Prometheus queries, ratios that such a
query yields, and vLLM's histograms, which count what lies under a bucket's bound.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from alerts import vocabulary
from alerts.blindness import EXPECTED, HIDING, LEAST_LEFT_OUT, LOOKED_AT_S, NONE_SELECTED
from alerts.errors import RuleError
from alerts.expression import Comparison, Expression, conjuncts, render
from alerts.objectives import Goodput, Objective, QueryRatio, RawRatio
from alerts.query_indicators import Queries, Seconds, summed
from alerts.rulefile import quoted
from alerts.vllm_metrics import HISTOGRAMS, MODEL_LABEL, Histogram
from telemetry import durations


class Counted(Protocol):
    """Counts over a window, as PromQL expressions without labels."""

    @property
    def about(self) -> str:
        """What a person should know of how it is counted."""

    @property
    def when_absent(self) -> str:
        """What to look at where the counters are absent."""

    @property
    def blind(self) -> Mapping[str, str]:
        """Conditions under which it counts nothing that it should, by reason, as PromQL."""

    @property
    def in_explorer(self) -> bool:
        """Whether the explorer shows these events."""

    @property
    def outlived_s(self) -> int:
        """For how long `present` has a value after the counters have gone."""

    @property
    def present(self) -> str:
        """Has a value while the counters are there."""

    @property
    def places(self) -> str | None:
        """The groups that have a place, where Prometheus decides it."""

    def events(self, window: str) -> str:
        """All events."""

    def bad(self, window: str) -> str:
        """The bad ones."""


@dataclass(frozen=True, slots=True)
class OwnCounters:
    """Tailspan's counters, each request against the exact threshold."""

    slo: str
    by: tuple[str, ...] = ()
    about: str = "Counted request by request, against the exact threshold."
    when_absent: str = (
        "First: check that Tailspan runs, that Prometheus scrapes it, and that it has this"
        " objective: `tailspan doctor`, `tailspan slo status`."
    )
    in_explorer: bool = True
    outlived_s: int = 0
    places: str | None = None

    def _of(self, name: str, *more: str) -> str:
        inside = ",".join([f"{vocabulary.SLO}={quoted(self.slo)}", *more])
        return f"{name}{{{inside}}}"

    @property
    def blind(self) -> Mapping[str, str]:
        """As `alerts.blindness` has it."""
        window = durations.render(LOOKED_AT_S)
        events = OwnCounters(self.slo).events(window)  # of all groups together

        def excluded(*more: str) -> str:
            return f"sum(increase({self._of(vocabulary.EXCLUDED_EVENTS, *more)}[{window}]))"

        conditions = {}
        for reason in HIDING:
            hidden = excluded(f"{vocabulary.REASON}={quoted(reason)}")
            least = LEAST_LEFT_OUT - 0.5  # increase() may tell 4.9999
            conditions[reason] = f"{hidden} > {least}\nand {hidden} > {events}\n"
        conditions[NONE_SELECTED] = (
            f"sum(increase({vocabulary.REQUESTS}[{window}])) > {EXPECTED - 0.5}\n"
            f"and {events} == 0\nand {excluded()} == 0\n"
        )
        return conditions

    @property
    def present(self) -> str:
        """Any of them."""
        return f"{summed(self.by)}({self._of(vocabulary.EVENTS)})"

    def events(self, window: str) -> str:
        """All events."""
        return f"{summed(self.by)}(increase({self._of(vocabulary.EVENTS)}[{window}]))"

    def bad(self, window: str) -> str:
        """All but the good ones."""
        good = f"increase({self._of(vocabulary.GOOD_EVENTS)}[{window}])"
        return f"{self.events(window)} - {summed(self.by)}({good})"


@dataclass(frozen=True, slots=True)
class Buckets:
    """One of vLLM's histograms, split at one of its bounds."""

    histogram: Histogram
    le: str
    selector: str
    about: str = (
        "Counted by a bucket of vLLM's own histogram, which knows neither aborted nor failed"
        " requests."
    )
    when_absent: str = (
        "First: check that vLLM runs and that Prometheus scrapes its /metrics (`up`); a vLLM with"
        " --custom-histogram-buckets may lack the bucket."
    )
    blind: Mapping[str, str] = field(default_factory=dict)
    in_explorer: bool = False
    outlived_s: int = 0
    places: str | None = None

    def _of(self, suffix: str, le: str = "") -> str:
        inside = ",".join(each for each in (self.selector, le) if each)
        return f"{self.histogram.name}_{suffix}" + (f"{{{inside}}}" if inside else "")

    @property
    def present(self) -> str:
        """The bucket: were vLLM's bounds others, there would be none."""
        return f"sum({self._bucket})"

    @property
    def _bucket(self) -> str:
        return self._of("bucket", f"le=~{quoted(self.le)}")

    def events(self, window: str) -> str:
        """All observations."""
        return f"sum(increase({self._of('count')}[{window}]))"

    def bad(self, window: str) -> str:
        """Those beyond the bound."""
        return f"{self.events(window)} - sum(increase({self._bucket}[{window}]))"


def of_tailspan(objective: Objective) -> Counted:
    """For servers watched by Tailspan, and for objectives from elsewhere."""
    return _elsewhere(objective) or OwnCounters(objective.name, objective.by)


def of_vllm(objective: Objective) -> Counted:
    """For servers that only Prometheus watches.

    Raises:
        RuleError: vLLM's histograms cannot count this.
    """
    elsewhere = _elsewhere(objective)
    if elsewhere is not None:
        return elsewhere
    where = f"{objective.file}:{objective.line}: {objective.name}"
    goodput = objective.indicator
    assert isinstance(goodput, Goodput)
    if goodput.by:
        raise RuleError(
            f"{where}: vLLM's histograms have no labels for by: {', '.join(goodput.by)};"
            " allowed: no by"
        )
    comparison = _single(goodput, where)
    histogram = HISTOGRAMS[comparison.field]
    return Buckets(histogram, _le(histogram, comparison, where), _selector(goodput.where, where))


def _elsewhere(objective: Objective) -> Counted | None:
    match objective.indicator:
        case QueryRatio() as queries:
            return Queries(queries, objective.name)
        case RawRatio() as ratio:
            return Seconds(ratio)
        case Goodput():
            return None


def _single(goodput: Goodput, where: str) -> Comparison:
    allowed = f"allowed: FIELD <= BOUND, with one of {', '.join(HISTOGRAMS)}"
    good = goodput.good
    if len(conjuncts(good)) > 1:
        raise RuleError(
            f"{where}: vLLM's histograms are separate: they cannot tell whether the same request"
            f" kept all of {render(good)}; {allowed}"
        )
    if (
        not isinstance(good, Comparison)
        or good.field not in HISTOGRAMS
        or good.operator not in ("<=", "<")
    ):
        raise RuleError(f"{where}: vLLM has no histogram for this promise; {allowed}")
    if good.operator == "<":
        raise RuleError(f"{where}: a bucket holds what is at most its bound: write <=; {allowed}")
    return good


def _le(histogram: Histogram, comparison: Comparison, where: str) -> str:
    """A regular expression for the bound's label: it is text, and `1` and `1.0` are both in use."""
    threshold = float(comparison.value)
    if threshold not in histogram.bounds_s:
        below = max((bound for bound in histogram.bounds_s if bound < threshold), default=None)
        above = min((bound for bound in histogram.bounds_s if bound > threshold), default=None)
        near = " and ".join(f"{bound:g}" for bound in (below, above) if bound is not None)
        raise RuleError(
            f"{where}: {comparison.field} <= {comparison.written} is between two buckets of"
            f" {histogram.name}, which cannot tell; the nearest bounds are {near}"
        )
    forms = dict.fromkeys([f"{threshold:g}", repr(threshold)])
    return "|".join(re.escape(form) for form in forms)


def _selector(where: Expression | None, named: str) -> str:
    if where is None:
        return ""
    if isinstance(where, Comparison) and where.field == "model" and where.operator == "==":
        return f"{MODEL_LABEL}={quoted(str(where.value))}"
    raise RuleError(
        f'{named}: vLLM labels its histograms by model alone; allowed in where: model == "…"'
    )
