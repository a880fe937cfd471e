from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporters.definitions.series import HISTOGRAMS
from exporters.format.histogram_cells import matrix
from exporters.totals.label_limits import ExporterLabels
from exporters.totals.request_batch import RequestBatch
from exporters.totals.requests import PairTotals, RequestTotals, TenantTotals
from telemetry.request_rows import RequestRows
from telemetry.requests import Outcome, RequestTimeline

Factory = Callable[..., RequestTimeline]
PAIR = ("llama", "r1")


def _bulk(*requests: RequestTimeline) -> RequestBatch:
    return RequestBatch.under(RequestRows.of(requests), ExporterLabels(), 0)


def _totals(*requests: RequestTimeline) -> PairTotals:
    totals = RequestTotals()
    totals.add(_bulk(*requests))
    return totals.copy()[PAIR]


def test_an_answered_request_is_in_every_histogram(request_row: Factory) -> None:
    totals = _totals(request_row())
    assert set(totals.histograms) == {histogram.name for histogram in HISTOGRAMS}
    assert totals.counts.tokens == {
        "prompt_tokens": 512,
        "cached_tokens": 128,
        "output_tokens": 20,
        "reasoning_tokens": 4,
    }
    assert totals.counts.outcomes[Outcome.STOP] == 1


def test_a_value_on_a_bound_is_within_it(request_row: Factory) -> None:
    totals = _totals(request_row(queue_s=0.3))
    held = totals.histograms["tailspan_queue_seconds"]
    bounds = next(each.bounds_s for each in HISTOGRAMS if each.field == "queue_s")
    [cumulative] = held.cells.cumulative(matrix([held.counts])).tolist()
    assert cumulative[bounds.index(0.3) - 1 : bounds.index(0.3) + 1] == [0, 1]


def test_the_unknown_is_not_observed(request_row: Factory) -> None:
    totals = _totals(request_row(output_tokens=1, itl_max_s=None, cached_tokens=None))
    assert "tailspan_tpot_seconds" not in totals.histograms
    assert "tailspan_itl_max_seconds" not in totals.histograms
    assert "cached_tokens" not in totals.counts.tokens


def test_aborted_and_rejected_requests_do_not_count_as_fast(request_row: Factory) -> None:
    unknown = dict.fromkeys(("ttft_s", "first_content_s", "decode_s", "itl_max_s"))
    totals = _totals(request_row(outcome=Outcome.ABORT, **unknown))
    assert set(totals.histograms) == {"tailspan_queue_seconds"}
    assert totals.counts.outcomes[Outcome.ABORT] == 1
    rejected = _totals(request_row(outcome=Outcome.REJECTED))
    assert not rejected.histograms
    assert rejected.counts.outcomes[Outcome.REJECTED] == 1


def test_an_expected_pair_starts_at_zero_for_every_outcome() -> None:
    """`rate` does not include the first event of a counter that begins at 1."""
    totals = RequestTotals()
    totals.expect(PAIR)
    assert totals.copy()[PAIR].counts.outcomes == dict.fromkeys(Outcome, 0)
    assert totals.copy()[PAIR].histograms == {}


def test_a_copy_does_not_change_later(request_row: Factory) -> None:
    totals = RequestTotals()
    totals.add(_bulk(request_row()))
    copy = totals.copy()
    totals.add(_bulk(request_row()))
    assert copy[PAIR].counts.outcomes[Outcome.STOP] == 1
    assert sum(copy[PAIR].histograms["tailspan_e2e_seconds"].counts) == 1


def test_time_is_counted_by_phase_and_part(request_row: Factory) -> None:
    split = dict.fromkeys((f"queue_{part}_s" for part in ("seats", "kv", "budget", "held")), 0.01)
    totals = _totals(request_row(**split, queue_step_s=0.16), request_row(frontend_s=None))
    assert totals.phased == 1
    assert sum(totals.phases_s.values()) == pytest.approx(1.5)
    assert sum(s for (phase, _), s in totals.parts_s.items() if phase == "queue") == 0.2
    assert not any(phase == "decode" for phase, _ in totals.parts_s)


def test_the_latest_request_is_the_exemplar_of_its_bucket(request_row: Factory) -> None:
    rows = [request_row(ttft_s=ttft_s) for ttft_s in (0.31, 0.45, 3.0)]
    totals, last = _totals(*rows), rows[-1]
    exemplars = totals.histograms["tailspan_ttft_seconds"].exemplars
    assert [value_s for _, value_s, _ in exemplars.values()] == [0.45, 3.0]
    assert list(exemplars.values())[1][0] == last.trace_id


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.floats(0, 1e6), st.sampled_from(["r1", "r2"])), min_size=1))
def test_each_value_is_in_one_bucket(request_row: Factory, rows: list[tuple[float, str]]) -> None:
    totals = RequestTotals()
    totals.add(_bulk(*(request_row(ttft_s=value, replica=replica) for value, replica in rows)))
    for (_, replica), each in totals.copy().items():
        values = [value for value, of in rows if of == replica]
        ttft = each.histograms["tailspan_ttft_seconds"]
        assert sum(ttft.counts) == len(values)
        assert abs(ttft.sum_s - sum(values)) <= 1e-9 * sum(values)


def test_requests_with_different_labels_are_counted_separately(request_row: Factory) -> None:
    rows = [
        request_row(replica=f"r{n % 3}", tenant=f"t{n % 2}", ttft_s=0.1 * n, cached_tokens=n)
        for n in range(12)
    ]
    totals, tenants = RequestTotals(), TenantTotals()
    totals.add(_bulk(*rows))
    tenants.add(_bulk(*rows))
    for n in range(3):
        assert totals.copy()["llama", f"r{n}"] == _alone(rows[n::3], n)
    assert {pair: each.tokens["cached_tokens"] for pair, each in tenants.copy().items()} == {
        ("llama", "t0"): 30,
        ("llama", "t1"): 36,
    }


def _alone(rows: list[RequestTimeline], replica: int) -> PairTotals:
    alone = RequestTotals()
    for row in rows:
        alone.add(_bulk(row))
    return alone.copy()["llama", f"r{replica}"]


def test_costs_are_summed_where_they_are_known(request_row: Factory) -> None:
    tenants = TenantTotals()
    tenants.add(_bulk(request_row()))
    assert tenants.copy()["llama", ""].costs == {}
    costly = request_row(cost_usd=0.25, billed_s=2.0, wasted_s=0.5)
    tenants.add(_bulk(costly, request_row(cost_usd=0.5, billed_s=1.0)))
    values = {"cost_usd": 0.75, "billed_s": 3.0, "wasted_s": 0.5}
    assert tenants.copy()["llama", ""].costs == values
