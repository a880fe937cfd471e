from dataclasses import replace
from typing import Any

from exporters.format.text import Scalars
from exporters.totals import probes as totals
from exporters.totals.probes import ProbeTotals
from telemetry.probes import Probe, ProbeOutcome
from tests.probe.results import EXAMPLE

NOW = EXAMPLE.at_unix_ns + 10**9
LABELS = ("eu-west", "chat", "tiny")


def _next(number: int, **about: Any) -> Probe:
    at = EXAMPLE.at_unix_ns + number * 30 * 10**9
    return replace(EXAMPLE, trace_id=f"{number + 7:032x}", at_unix_ns=at, **about)


def _values(made: ProbeTotals, now_unix_ns: int = NOW) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (family.of.name, labels): value
        for family in made.families(now_unix_ns)
        if isinstance(family, Scalars)
        for labels, value in family.values.items()
    }


def test_the_latest_result_is_exported_in_phases_that_sum() -> None:
    made = ProbeTotals()
    made.add([EXAMPLE], NOW)
    values = _values(made)
    assert values["tailspan_probe_success", LABELS] == 1
    assert values["tailspan_probe_ssl_earliest_cert_expiry", LABELS] == 1_900_000_000
    phases = [value for (name, _), value in values.items() if name.endswith("duration_seconds")]
    assert len(phases) == 6
    assert abs(sum(phases) - (0.001 + 0.002 + 0.003 + 0.004 + 0.5)) < 1e-9


def test_a_failure_is_0_and_a_repeat_counts_once() -> None:
    made = ProbeTotals()
    failed = _next(1, outcome=ProbeOutcome.TIMEOUT, first_event_s=None)
    made.add([EXAMPLE, failed], NOW)
    made.add([EXAMPLE, failed], NOW)
    values = _values(made)
    assert values["tailspan_probe_success", LABELS] == 0
    assert values["tailspan_probe_results_total", (*LABELS, "timeout")] == 1
    assert values["tailspan_probe_results_total", (*LABELS, "stop")] == 1
    assert values["tailspan_probe_cost_usd_total", LABELS] == 0.002


def test_an_answer_of_a_cache_is_a_success_without_times() -> None:
    """The reported times stay those of the model's last response."""
    made, alone = ProbeTotals(), ProbeTotals()
    cached = _next(1, outcome=ProbeOutcome.CACHED, first_content_s=0.001, e2e_s=0.002)
    made.add([EXAMPLE, cached], NOW)
    alone.add([cached], NOW)
    values = _values(made)
    assert values["tailspan_probe_success", LABELS] == 1
    assert values["tailspan_probe_results_total", (*LABELS, "cached")] == 1
    assert values["tailspan_probe_e2e_seconds", LABELS] == EXAMPLE.e2e_s
    assert ("tailspan_probe_success", LABELS) in _values(alone)
    times = {name for name, _ in _values(alone) if name.endswith("_seconds")}
    assert times == {"tailspan_probe_last_timestamp_seconds"}


def test_an_unsent_probe_does_not_count_for_the_endpoint() -> None:
    """A spent budget must not look like a failing endpoint."""
    made = ProbeTotals()
    unsent = (ProbeOutcome.MISSED, ProbeOutcome.OVER_BUDGET, ProbeOutcome.ABORT)
    made.add([EXAMPLE, *(_next(n, outcome=each) for n, each in enumerate(unsent, 1))], NOW)
    values = _values(made)
    assert values["tailspan_probe_success", LABELS] == 1
    assert values["tailspan_probe_results_total", (*LABELS, "over_budget")] == 1


def test_the_gauges_of_a_silent_prober_end_and_its_counts_stay() -> None:
    made = ProbeTotals()
    made.add([EXAMPLE], NOW)
    names = {name for name, _ in _values(made, EXAMPLE.at_unix_ns + 301 * 10**9)}
    assert names == {
        "tailspan_probe_results_total",
        "tailspan_probe_cost_usd_total",
        "tailspan_probe_unlisted_results_total",
    }
    made.add([_next(20)], NOW)  # a probe every 10 minutes
    assert ("tailspan_probe_success", LABELS) in _values(made, _next(20).at_unix_ns + 1_500 * 10**9)


def test_endpoints_beyond_the_limit_are_counted(monkeypatch: Any) -> None:
    monkeypatch.setattr(totals, "MAX_ENDPOINTS", 1)
    made = ProbeTotals()
    made.add([EXAMPLE, _next(1, endpoint="second")], NOW)
    assert _values(made)["tailspan_probe_unlisted_results_total", ()] == 1


def test_without_probes_there_is_no_series() -> None:
    assert ProbeTotals().families(NOW) == []


def test_a_result_from_the_future_hides_no_later_result() -> None:
    """It was stored while a clock was ahead, for example before the clock was set back."""
    made = ProbeTotals()
    hour = 120
    made.add([_next(hour, e2e_s=9.0)], NOW + 3_600 * 10**9)
    assert ("tailspan_probe_success", LABELS) in _values(made, NOW + 3_600 * 10**9)
    assert ("tailspan_probe_success", LABELS) not in _values(made, NOW)
    failed = _next(1, outcome=ProbeOutcome.TIMEOUT, e2e_s=1.0, first_event_s=None)
    made.add([failed], NOW + 30 * 10**9)
    values = _values(made, NOW + 30 * 10**9)
    assert values["tailspan_probe_success", LABELS] == 0
    assert values["tailspan_probe_e2e_seconds", LABELS] == 1.0
    assert values["tailspan_probe_last_timestamp_seconds", LABELS] == failed.at_unix_ns / 1e9
    names = {name for name, _ in _values(made, failed.at_unix_ns + 301 * 10**9)}
    assert "tailspan_probe_success" not in names


def test_a_result_that_arrives_late_is_not_the_latest() -> None:
    made = ProbeTotals()
    made.add([_next(1), _next(0, e2e_s=9.0)], NOW + 30 * 10**9)
    assert _values(made)["tailspan_probe_e2e_seconds", LABELS] == EXAMPLE.e2e_s
